package bench;

import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Kafka's MaskField and ReplaceField need maps, and MirrorMaker 2 gives them bytes: this SMT parses them before.
 * Its JsonConverter writes the maps as JSON again.
 */
public class ParseJson<R extends ConnectRecord<R>> implements Transformation<R> {
    private final JsonConverter converter = new JsonConverter();

    @Override
    public void configure(Map<String, ?> ignored) {
        converter.configure(Map.of("schemas.enable", "false"), false);
    }

    @Override
    public R apply(R record) {
        if (!(record.value() instanceof byte[] bytes)) {
            return record;
        }
        Object parsed = converter.toConnectData(record.topic(), bytes).value();
        return record.newRecord(record.topic(), record.kafkaPartition(), record.keySchema(), record.key(),
            null, parsed, record.timestamp());
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public void close() {
        converter.close();
    }
}
