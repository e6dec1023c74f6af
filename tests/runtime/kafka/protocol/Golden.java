import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** Prints what Kafka's own Java classes make of known values: name, version, bytes. How to run it: test_golden.py. */
public class Golden {
    static final Uuid ONE = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);
    static final Uuid TWO = new Uuid(0x1112131415161718L, 0x191a1b1c1d1e1f20L);
    static final byte[] BATCH = "pretend this is a record batch".getBytes();

    static void print(String name, Message message, int... versions) {
        for (int version : versions) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, (short) version));
            message.write(new ByteBufferAccessor(buffer), cache, (short) version);
            StringBuilder hex = new StringBuilder();
            for (byte b : buffer.array()) hex.append(String.format("%02x", b));
            System.out.println(name + " " + version + " " + hex);
        }
    }

    static MemoryRecords records() {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(BATCH));
    }

    static FetchRequestData.FetchPartition fetch(int partition, long offset) {
        return new FetchRequestData.FetchPartition().setPartition(partition).setCurrentLeaderEpoch(7)
            .setFetchOffset(offset).setLastFetchedEpoch(6).setPartitionMaxBytes(1048576);
    }

    public static void main(String[] args) {
        print("ApiVersionsRequest", new ApiVersionsRequestData().setClientSoftwareName("repl").setClientSoftwareVersion("1"), 3);
        print("OldApiVersionsRequest", new ApiVersionsRequestData(), 0);
        ApiVersionsResponseData.ApiVersionCollection apis = new ApiVersionsResponseData.ApiVersionCollection();
        apis.add(new ApiVersionsResponseData.ApiVersion().setApiKey((short) 0).setMinVersion((short) 3).setMaxVersion((short) 13));
        apis.add(new ApiVersionsResponseData.ApiVersion().setApiKey((short) 1).setMinVersion((short) 4).setMaxVersion((short) 18));
        ApiVersionsResponseData.SupportedFeatureKeyCollection supported = new ApiVersionsResponseData.SupportedFeatureKeyCollection();
        supported.add(new ApiVersionsResponseData.SupportedFeatureKey().setName("transaction.version").setMinVersion((short) 0).setMaxVersion((short) 2));
        ApiVersionsResponseData.FinalizedFeatureKeyCollection finalized = new ApiVersionsResponseData.FinalizedFeatureKeyCollection();
        finalized.add(new ApiVersionsResponseData.FinalizedFeatureKey().setName("transaction.version").setMaxVersionLevel((short) 2).setMinVersionLevel((short) 2));
        print("ApiVersionsResponse", new ApiVersionsResponseData().setThrottleTimeMs(5).setApiKeys(apis).setSupportedFeatures(supported)
            .setFinalizedFeaturesEpoch(9).setFinalizedFeatures(finalized), 3);
        print("OldApiVersionsResponse", new ApiVersionsResponseData().setApiKeys(apis), 0);
        print("SaslHandshakeRequest", new SaslHandshakeRequestData().setMechanism("SCRAM-SHA-512"), 1);
        print("SaslHandshakeResponse", new SaslHandshakeResponseData().setErrorCode((short) 33).setMechanisms(List.of("PLAIN", "GSSAPI")), 1);
        print("SaslAuthenticateRequest", new SaslAuthenticateRequestData().setAuthBytes("secret".getBytes()), 0, 1, 2);
        print("SaslAuthenticateResponse", new SaslAuthenticateResponseData().setErrorCode((short) 58).setErrorMessage("no")
            .setAuthBytes("x".getBytes()).setSessionLifetimeMs(60000), 2);
        print("OldSaslAuthenticateResponse", new SaslAuthenticateResponseData().setErrorCode((short) 58).setErrorMessage("no")
            .setAuthBytes("x".getBytes()), 0, 1);

        print("MetadataRequest.names", new MetadataRequestData().setAllowAutoTopicCreation(false).setTopics(List.of(
            new MetadataRequestData.MetadataRequestTopic().setName("orders"), new MetadataRequestData.MetadataRequestTopic().setName("päy"))), 9, 10, 11, 12);
        print("MetadataRequest.all", new MetadataRequestData().setAllowAutoTopicCreation(false).setTopics(null), 12);
        for (short version = 1; version <= 12; version++) {
            MetadataRequestData asked = new MetadataRequestData().setAllowAutoTopicCreation(version < 4);
            print("AnyMetadataRequest.names", asked.setTopics(List.of(new MetadataRequestData.MetadataRequestTopic().setName("orders"))), version);
            print("AnyMetadataRequest.all", asked.setTopics(null), version);
        }
        MetadataResponseData.MetadataResponseBrokerCollection brokers = new MetadataResponseData.MetadataResponseBrokerCollection();
        brokers.add(new MetadataResponseData.MetadataResponseBroker().setNodeId(1).setHost("one").setPort(9092).setRack("r1"));
        brokers.add(new MetadataResponseData.MetadataResponseBroker().setNodeId(2).setHost("two").setPort(9093));
        MetadataResponseData.MetadataResponseTopicCollection topics = new MetadataResponseData.MetadataResponseTopicCollection();
        topics.add(new MetadataResponseData.MetadataResponseTopic().setName("orders").setTopicId(ONE).setPartitions(List.of(
            new MetadataResponseData.MetadataResponsePartition().setPartitionIndex(0).setLeaderId(2).setLeaderEpoch(5)
                .setReplicaNodes(List.of(1, 2)).setIsrNodes(List.of(2)).setOfflineReplicas(List.of(1)),
            new MetadataResponseData.MetadataResponsePartition().setErrorCode((short) 5).setPartitionIndex(1).setLeaderId(-1)
                .setLeaderEpoch(4).setReplicaNodes(List.of(1)).setIsrNodes(List.of()).setOfflineReplicas(List.of()))));
        topics.add(new MetadataResponseData.MetadataResponseTopic().setErrorCode((short) 100).setName(null).setTopicId(TWO).setPartitions(List.of()));
        print("MetadataResponse", new MetadataResponseData().setThrottleTimeMs(3).setBrokers(brokers).setClusterId("abc").setControllerId(1).setTopics(topics), 12);
        MetadataResponseData.MetadataResponseTopicCollection orders = new MetadataResponseData.MetadataResponseTopicCollection();
        orders.add(new MetadataResponseData.MetadataResponseTopic().setName("orders").setIsInternal(true).setPartitions(List.of(
            new MetadataResponseData.MetadataResponsePartition().setPartitionIndex(0).setLeaderId(2)
                .setReplicaNodes(List.of(1, 2)).setIsrNodes(List.of(2)))));
        print("AnyMetadataResponse", new MetadataResponseData().setBrokers(brokers).setClusterId("abc").setControllerId(1).setTopics(orders),
            2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);

        FetchRequestData fetch = new FetchRequestData().setMaxWaitMs(500).setMinBytes(1).setMaxBytes(33554432).setIsolationLevel((byte) 1)
            .setSessionId(77).setSessionEpoch(3).setRackId("r1").setTopics(List.of(
                new FetchRequestData.FetchTopic().setTopicId(ONE).setPartitions(List.of(fetch(0, 10), fetch(1, 1L << 40))),
                new FetchRequestData.FetchTopic().setTopicId(TWO).setPartitions(List.of(fetch(5, 0)))))
            .setForgottenTopicsData(List.of(new FetchRequestData.ForgottenTopic().setTopicId(TWO).setPartitions(List.of(1, 2))));
        print("FetchRequest", fetch, 13, 15, 17);
        print("OldFetchRequest", new FetchRequestData().setMaxWaitMs(500).setMinBytes(1).setMaxBytes(33554432).setIsolationLevel((byte) 1)
            .setSessionId(77).setSessionEpoch(3).setRackId("r1").setTopics(List.of(
                new FetchRequestData.FetchTopic().setTopic("orders").setPartitions(List.of(fetch(0, 10), fetch(1, 1L << 40))),
                new FetchRequestData.FetchTopic().setTopic("päy").setPartitions(List.of(fetch(5, 0)))))
            .setForgottenTopicsData(List.of(new FetchRequestData.ForgottenTopic().setTopic("päy").setPartitions(List.of(1, 2)))), 12);
        // Version 11 has no last fetched epoch.
        FetchRequestData.FetchPartition first = new FetchRequestData.FetchPartition().setPartition(0).setCurrentLeaderEpoch(7)
            .setFetchOffset(10).setPartitionMaxBytes(1048576);
        FetchRequestData.FetchPartition second = new FetchRequestData.FetchPartition().setPartition(1).setCurrentLeaderEpoch(7)
            .setFetchOffset(1L << 40).setPartitionMaxBytes(1048576);
        FetchRequestData.FetchPartition fifth = new FetchRequestData.FetchPartition().setPartition(5).setCurrentLeaderEpoch(7)
            .setFetchOffset(0).setPartitionMaxBytes(1048576);
        print("OldFetchRequest", new FetchRequestData().setMaxWaitMs(500).setMinBytes(1).setMaxBytes(33554432).setIsolationLevel((byte) 1)
            .setSessionId(77).setSessionEpoch(3).setRackId("r1").setTopics(List.of(
                new FetchRequestData.FetchTopic().setTopic("orders").setPartitions(List.of(first, second)),
                new FetchRequestData.FetchTopic().setTopic("päy").setPartitions(List.of(fifth))))
            .setForgottenTopicsData(List.of(new FetchRequestData.ForgottenTopic().setTopic("päy").setPartitions(List.of(1, 2)))), 11);
        FetchResponseData.PartitionData full = new FetchResponseData.PartitionData().setPartitionIndex(0).setHighWatermark(100)
            .setLastStableOffset(90).setLogStartOffset(5).setRecords(records()).setAbortedTransactions(List.of(
                new FetchResponseData.AbortedTransaction().setProducerId(9).setFirstOffset(20),
                new FetchResponseData.AbortedTransaction().setProducerId(10).setFirstOffset(21)));
        FetchResponseData.PartitionData diverging = new FetchResponseData.PartitionData().setPartitionIndex(1).setHighWatermark(50)
            .setLastStableOffset(50).setLogStartOffset(0).setAbortedTransactions(null).setPreferredReadReplica(2)
            .setDivergingEpoch(new FetchResponseData.EpochEndOffset().setEpoch(4).setEndOffset(33));
        FetchResponseData.PartitionData moved = new FetchResponseData.PartitionData().setPartitionIndex(2).setErrorCode((short) 6)
            .setHighWatermark(-1).setAbortedTransactions(List.of())
            .setCurrentLeader(new FetchResponseData.LeaderIdAndEpoch().setLeaderId(3).setLeaderEpoch(8));
        FetchResponseData.NodeEndpointCollection endpoints = new FetchResponseData.NodeEndpointCollection();
        FetchResponseData answer = new FetchResponseData().setThrottleTimeMs(11).setSessionId(77).setResponses(List.of(
            new FetchResponseData.FetchableTopicResponse().setTopicId(ONE).setPartitions(List.of(full, diverging)),
            new FetchResponseData.FetchableTopicResponse().setTopicId(TWO).setPartitions(List.of(moved))));
        print("FetchResponse", answer, 13);
        FetchResponseData.PartitionData refused = new FetchResponseData.PartitionData().setPartitionIndex(2).setErrorCode((short) 6)
            .setHighWatermark(-1).setAbortedTransactions(List.of());
        print("OldFetchResponse", new FetchResponseData().setThrottleTimeMs(11).setSessionId(77).setResponses(List.of(
            new FetchResponseData.FetchableTopicResponse().setTopic("orders").setPartitions(List.of(full)),
            new FetchResponseData.FetchableTopicResponse().setTopic("päy").setPartitions(List.of(refused)))), 11, 12);
        endpoints.add(new FetchResponseData.NodeEndpoint().setNodeId(3).setHost("three").setPort(9094).setRack(null));
        print("FetchResponse", answer.setNodeEndpoints(endpoints), 17);

        ProduceRequestData.TopicProduceDataCollection data = new ProduceRequestData.TopicProduceDataCollection();
        data.add(new ProduceRequestData.TopicProduceData().setName("orders").setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records()),
            new ProduceRequestData.PartitionProduceData().setIndex(3).setRecords(records()))));
        data.add(new ProduceRequestData.TopicProduceData().setName("päy").setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(1).setRecords(records()))));
        print("ProduceRequest", new ProduceRequestData().setTransactionalId("tx").setAcks((short) -1).setTimeoutMs(30000).setTopicData(data), 8, 9, 11);
        print("ProduceRequest.plain", new ProduceRequestData().setTransactionalId(null).setAcks((short) 1).setTimeoutMs(1).setTopicData(data), 11);
        ProduceResponseData.TopicProduceResponseCollection produced = new ProduceResponseData.TopicProduceResponseCollection();
        produced.add(new ProduceResponseData.TopicProduceResponse().setName("orders").setPartitionResponses(List.of(
            new ProduceResponseData.PartitionProduceResponse().setIndex(0).setBaseOffset(1234).setLogStartOffset(7),
            new ProduceResponseData.PartitionProduceResponse().setIndex(3).setErrorCode((short) 87).setBaseOffset(-1).setErrorMessage("bad").setRecordErrors(List.of(
                new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndex(2).setBatchIndexErrorMessage("null key"),
                new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndex(4))))));
        print("ProduceResponse", new ProduceResponseData().setThrottleTimeMs(13).setResponses(produced), 8, 9);
        ProduceResponseData.NodeEndpointCollection nodes = new ProduceResponseData.NodeEndpointCollection();
        nodes.add(new ProduceResponseData.NodeEndpoint().setNodeId(3).setHost("three").setPort(9094));
        ProduceResponseData.TopicProduceResponseCollection movedAway = new ProduceResponseData.TopicProduceResponseCollection();
        movedAway.add(new ProduceResponseData.TopicProduceResponse().setName("orders").setPartitionResponses(List.of(
            new ProduceResponseData.PartitionProduceResponse().setIndex(0).setErrorCode((short) 6).setBaseOffset(-1)
                .setCurrentLeader(new ProduceResponseData.LeaderIdAndEpoch().setLeaderId(3).setLeaderEpoch(8)))));
        print("ProduceResponse.moved", new ProduceResponseData().setResponses(movedAway).setNodeEndpoints(nodes), 11);

        print("FindCoordinatorRequest", new FindCoordinatorRequestData().setKeyType((byte) 1).setCoordinatorKeys(List.of("a", "b")), 4);
        print("FindCoordinatorRequest.one", new FindCoordinatorRequestData().setKeyType((byte) 1).setKey("a"), 2, 3);
        print("FindCoordinatorResponse.one", new FindCoordinatorResponseData().setThrottleTimeMs(1).setNodeId(2).setHost("two").setPort(9093)
            .setErrorMessage(""), 2, 3);
        print("FindCoordinatorResponse", new FindCoordinatorResponseData().setThrottleTimeMs(1).setCoordinators(List.of(
            new FindCoordinatorResponseData.Coordinator().setKey("a").setNodeId(2).setHost("two").setPort(9093).setErrorMessage(""),
            new FindCoordinatorResponseData.Coordinator().setKey("b").setNodeId(-1).setErrorCode((short) 15).setErrorMessage(null))), 4);
        print("InitProducerIdRequest", new InitProducerIdRequestData().setTransactionalId("tx").setTransactionTimeoutMs(15000), 2, 3, 4);
        print("RenewProducerIdRequest", new InitProducerIdRequestData().setTransactionalId("tx").setTransactionTimeoutMs(15000)
            .setProducerId(9).setProducerEpoch((short) 2), 3, 4, 5);
        print("InitProducerIdResponse", new InitProducerIdResponseData().setThrottleTimeMs(2).setProducerId(1L << 33).setProducerEpoch((short) 12), 2, 4);
        AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection added = new AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection();
        added.add(new AddPartitionsToTxnRequestData.AddPartitionsToTxnTopic().setName("orders").setPartitions(List.of(0, 3)));
        added.add(new AddPartitionsToTxnRequestData.AddPartitionsToTxnTopic().setName("ledger").setPartitions(List.of(1)));
        print("AddPartitionsRequest", new AddPartitionsToTxnRequestData().setV3AndBelowTransactionalId("tx").setV3AndBelowProducerId(9)
            .setV3AndBelowProducerEpoch((short) 2).setV3AndBelowTopics(added), 0, 2, 3);
        AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResultCollection results = new AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResultCollection();
        results.add(new AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResult().setPartitionIndex(0).setPartitionErrorCode((short) 55));
        results.add(new AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResult().setPartitionIndex(3).setPartitionErrorCode((short) 3));
        AddPartitionsToTxnResponseData.AddPartitionsToTxnTopicResultCollection perTopic = new AddPartitionsToTxnResponseData.AddPartitionsToTxnTopicResultCollection();
        perTopic.add(new AddPartitionsToTxnResponseData.AddPartitionsToTxnTopicResult().setName("orders").setResultsByPartition(results));
        print("AddPartitionsResponse", new AddPartitionsToTxnResponseData().setThrottleTimeMs(4).setResultsByTopicV3AndBelow(perTopic), 0, 2, 3);
        print("EndTransactionRequest", new EndTxnRequestData().setTransactionalId("tx").setProducerId(9).setProducerEpoch((short) 2).setCommitted(true), 1, 3, 4);
        print("EndTransactionResponse", new EndTxnResponseData().setThrottleTimeMs(6).setErrorCode((short) 51), 1, 3, 4);

        print("ListOffsetsRequest", new ListOffsetsRequestData().setReplicaId(-1).setIsolationLevel((byte) 1).setTopics(List.of(
            new ListOffsetsRequestData.ListOffsetsTopic().setName("orders").setPartitions(List.of(
                new ListOffsetsRequestData.ListOffsetsPartition().setPartitionIndex(0).setTimestamp(-1),
                new ListOffsetsRequestData.ListOffsetsPartition().setPartitionIndex(1).setTimestamp(1700000000000L))))), 5, 7, 8);
        print("ListOffsetsResponse", new ListOffsetsResponseData().setThrottleTimeMs(8).setTopics(List.of(
            new ListOffsetsResponseData.ListOffsetsTopicResponse().setName("orders").setPartitions(List.of(
                new ListOffsetsResponseData.ListOffsetsPartitionResponse().setPartitionIndex(0).setOffset(99).setTimestamp(-1).setLeaderEpoch(5),
                new ListOffsetsResponseData.ListOffsetsPartitionResponse().setPartitionIndex(1).setErrorCode((short) 6))))), 5, 7);
        OffsetForLeaderEpochRequestData.OffsetForLeaderTopicCollection epochs = new OffsetForLeaderEpochRequestData.OffsetForLeaderTopicCollection();
        epochs.add(new OffsetForLeaderEpochRequestData.OffsetForLeaderTopic().setTopic("orders").setPartitions(List.of(
            new OffsetForLeaderEpochRequestData.OffsetForLeaderPartition().setPartition(0).setLeaderEpoch(4))));
        print("EpochEndsRequest", new OffsetForLeaderEpochRequestData().setReplicaId(-1).setTopics(epochs), 3, 4);
        OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResultCollection ends = new OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResultCollection();
        ends.add(new OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResult().setTopic("orders").setPartitions(List.of(
            new OffsetForLeaderEpochResponseData.EpochEndOffset().setPartition(0).setLeaderEpoch(4).setEndOffset(71),
            new OffsetForLeaderEpochResponseData.EpochEndOffset().setPartition(1).setErrorCode((short) 74))));
        print("EpochEndsResponse", new OffsetForLeaderEpochResponseData().setThrottleTimeMs(9).setTopics(ends), 3, 4);

        print("OffsetCommitRequest", new OffsetCommitRequestData().setGroupId("g").setTopics(List.of(
            new OffsetCommitRequestData.OffsetCommitRequestTopic().setName("orders").setPartitions(List.of(
                new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(2).setCommittedOffset(55).setCommittedMetadata(null))))), 8, 9);
        print("OffsetCommitResponse", new OffsetCommitResponseData().setThrottleTimeMs(1).setTopics(List.of(
            new OffsetCommitResponseData.OffsetCommitResponseTopic().setName("orders").setPartitions(List.of(
                new OffsetCommitResponseData.OffsetCommitResponsePartition().setPartitionIndex(2).setErrorCode((short) 25))))), 8);
        OffsetFetchRequestData.OffsetFetchRequestGroup some = new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId("g").setTopics(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestTopics().setName("orders").setPartitionIndexes(List.of(2, 3))));
        print("OffsetFetchRequest.some", new OffsetFetchRequestData().setGroups(List.of(some)), 8, 9);
        print("OffsetFetchRequest.all", new OffsetFetchRequestData().setGroups(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId("g").setTopics(null))), 8, 9);
        print("OffsetFetchRequest.some", new OffsetFetchRequestData().setGroupId("g").setTopics(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestTopic().setName("orders").setPartitionIndexes(List.of(2, 3)))), 6, 7);
        print("OffsetFetchRequest.all", new OffsetFetchRequestData().setGroupId("g").setTopics(null), 6, 7);
        print("OffsetFetchResponse", new OffsetFetchResponseData().setThrottleTimeMs(1).setTopics(List.of(
            new OffsetFetchResponseData.OffsetFetchResponseTopic().setName("orders").setPartitions(List.of(
                new OffsetFetchResponseData.OffsetFetchResponsePartition().setPartitionIndex(2).setCommittedOffset(55).setCommittedLeaderEpoch(4).setMetadata("m"),
                new OffsetFetchResponseData.OffsetFetchResponsePartition().setPartitionIndex(3).setCommittedOffset(-1).setMetadata("").setErrorCode((short) 88))))), 6, 7);
        print("FetchManyRequest.one", new OffsetFetchRequestData().setGroupId("g").setTopics(null), 6, 7);
        print("OffsetFetchResponse", new OffsetFetchResponseData().setThrottleTimeMs(1).setGroups(List.of(
            new OffsetFetchResponseData.OffsetFetchResponseGroup().setGroupId("g").setTopics(List.of(
                new OffsetFetchResponseData.OffsetFetchResponseTopics().setName("orders").setPartitions(List.of(
                    new OffsetFetchResponseData.OffsetFetchResponsePartitions().setPartitionIndex(2).setCommittedOffset(55).setCommittedLeaderEpoch(4).setMetadata("m"),
                    new OffsetFetchResponseData.OffsetFetchResponsePartitions().setPartitionIndex(3).setCommittedOffset(-1).setMetadata("").setErrorCode((short) 88))))))), 8);

        print("FetchManyRequest", new OffsetFetchRequestData().setGroups(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId("g").setTopics(null),
            new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId("h").setTopics(null))), 8, 9);
        print("FetchManyResponse", new OffsetFetchResponseData().setThrottleTimeMs(1).setGroups(List.of(
            new OffsetFetchResponseData.OffsetFetchResponseGroup().setGroupId("g").setTopics(List.of(
                new OffsetFetchResponseData.OffsetFetchResponseTopics().setName("orders").setPartitions(List.of(
                    new OffsetFetchResponseData.OffsetFetchResponsePartitions().setPartitionIndex(2).setCommittedOffset(55).setCommittedLeaderEpoch(4).setMetadata("m"))))),
            new OffsetFetchResponseData.OffsetFetchResponseGroup().setGroupId("h").setErrorCode((short) 16))), 8);
        print("DescribeQuorumRequest", new DescribeQuorumRequestData().setTopics(List.of(
            new DescribeQuorumRequestData.TopicData().setTopicName("__cluster_metadata").setPartitions(List.of(
                new DescribeQuorumRequestData.PartitionData().setPartitionIndex(0))))), 1);
        print("DescribeQuorumResponse", new DescribeQuorumResponseData().setTopics(List.of(
            new DescribeQuorumResponseData.TopicData().setTopicName("__cluster_metadata").setPartitions(List.of(
                new DescribeQuorumResponseData.PartitionData().setPartitionIndex(0).setLeaderId(2).setLeaderEpoch(7).setHighWatermark(50)
                    .setCurrentVoters(List.of(
                        new DescribeQuorumResponseData.ReplicaState().setReplicaId(1).setLogEndOffset(49).setLastFetchTimestamp(90).setLastCaughtUpTimestamp(80),
                        new DescribeQuorumResponseData.ReplicaState().setReplicaId(2).setLogEndOffset(50).setLastFetchTimestamp(100).setLastCaughtUpTimestamp(100)))
                    .setObservers(List.of(
                        new DescribeQuorumResponseData.ReplicaState().setReplicaId(3).setLogEndOffset(48).setLastFetchTimestamp(70).setLastCaughtUpTimestamp(60))))))), 1);
        print("ListGroupsRequest", new ListGroupsRequestData(), 0, 1, 2, 3, 4, 5);
        print("OldListGroupsResponse", new ListGroupsResponseData().setGroups(List.of(
            new ListGroupsResponseData.ListedGroup().setGroupId("g").setProtocolType("consumer"))), 0, 1, 2, 3);
        print("ListGroupsResponse", new ListGroupsResponseData().setThrottleTimeMs(1).setGroups(List.of(
            new ListGroupsResponseData.ListedGroup().setGroupId("g").setProtocolType("consumer").setGroupState("Empty").setGroupType("classic"))), 5);

        DescribeConfigsRequestData configs = new DescribeConfigsRequestData().setResources(List.of(
            new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType((byte) 2).setResourceName("orders").setConfigurationKeys(List.of("retention.ms", "flush.ms")),
            new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType((byte) 2).setResourceName("päy").setConfigurationKeys(List.of("retention.ms", "flush.ms"))));
        print("DescribeConfigsRequest.keys", configs, 1, 2, 3, 4);
        print("DescribeConfigsRequest.all", new DescribeConfigsRequestData().setResources(List.of(
            new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType((byte) 4).setResourceName("1").setConfigurationKeys(null))), 1, 2, 3, 4);
        print("DescribeConfigsResponse", new DescribeConfigsResponseData().setThrottleTimeMs(7).setResults(List.of(
            new DescribeConfigsResponseData.DescribeConfigsResult().setResourceType((byte) 2).setResourceName("orders").setErrorMessage(null).setConfigs(List.of(
                new DescribeConfigsResponseData.DescribeConfigsResourceResult().setName("retention.ms").setValue("1000").setConfigSource((byte) 1),
                new DescribeConfigsResponseData.DescribeConfigsResourceResult().setName("secret").setValue(null).setReadOnly(true).setConfigSource((byte) 5).setIsSensitive(true)
                    .setSynonyms(List.of(new DescribeConfigsResponseData.DescribeConfigsSynonym().setName("s").setValue("v").setSource((byte) 4))))),
            new DescribeConfigsResponseData.DescribeConfigsResult().setErrorCode((short) 29).setErrorMessage("no").setResourceType((byte) 2).setResourceName("hidden"))), 1, 2, 3, 4);
        print("DescribeAclsRequest", new DescribeAclsRequestData().setResourceTypeFilter((byte) 1).setResourceNameFilter(null).setPatternTypeFilter((byte) 1)
            .setPrincipalFilter(null).setHostFilter(null).setOperation((byte) 1).setPermissionType((byte) 1), 1, 2, 3);
        print("DescribeAclsResponse", new DescribeAclsResponseData().setThrottleTimeMs(2).setErrorMessage(null).setResources(List.of(
            new DescribeAclsResponseData.DescribeAclsResource().setResourceType((byte) 2).setResourceName("orders").setPatternType((byte) 4).setAcls(List.of(
                new DescribeAclsResponseData.AclDescription().setPrincipal("User:app").setHost("*").setOperation((byte) 3).setPermissionType((byte) 3),
                new DescribeAclsResponseData.AclDescription().setPrincipal("User:b").setHost("h").setOperation((byte) 4).setPermissionType((byte) 2))))), 1, 2, 3);
        print("DescribeClientQuotasRequest", new DescribeClientQuotasRequestData().setComponents(List.of()).setStrict(false), 0, 1);
        print("DescribeClientQuotasResponse", new DescribeClientQuotasResponseData().setThrottleTimeMs(3).setErrorMessage(null).setEntries(List.of(
            new DescribeClientQuotasResponseData.EntryData().setEntity(List.of(
                new DescribeClientQuotasResponseData.EntityData().setEntityType("user").setEntityName("app"),
                new DescribeClientQuotasResponseData.EntityData().setEntityType("client-id").setEntityName(null))).setValues(List.of(
                new DescribeClientQuotasResponseData.ValueData().setKey("producer_byte_rate").setValue(1048576.5))))), 0, 1);
        print("DescribeClientQuotasResponse.refused", new DescribeClientQuotasResponseData().setErrorCode((short) 31).setErrorMessage("no").setEntries(null), 0, 1);
        print("AlterClientQuotasRequest", new AlterClientQuotasRequestData().setValidateOnly(true).setEntries(List.of(
            new AlterClientQuotasRequestData.EntryData().setEntity(List.of(
                new AlterClientQuotasRequestData.EntityData().setEntityType("user").setEntityName("app"),
                new AlterClientQuotasRequestData.EntityData().setEntityType("client-id").setEntityName(null))).setOps(List.of(
                new AlterClientQuotasRequestData.OpData().setKey("producer_byte_rate").setValue(1048576.5),
                new AlterClientQuotasRequestData.OpData().setKey("request_percentage").setRemove(true))),
            new AlterClientQuotasRequestData.EntryData().setEntity(List.of(
                new AlterClientQuotasRequestData.EntityData().setEntityType("ip").setEntityName("10.0.0.7"))).setOps(List.of(
                new AlterClientQuotasRequestData.OpData().setKey("connection_creation_rate").setValue(20.0))))), 0, 1);
        print("AlterClientQuotasResponse", new AlterClientQuotasResponseData().setThrottleTimeMs(3).setEntries(List.of(
            new AlterClientQuotasResponseData.EntryData().setErrorMessage(null).setEntity(List.of(
                new AlterClientQuotasResponseData.EntityData().setEntityType("user").setEntityName("app"))),
            new AlterClientQuotasResponseData.EntryData().setErrorCode((short) 42).setErrorMessage("no").setEntity(List.of(
                new AlterClientQuotasResponseData.EntityData().setEntityType("client-id").setEntityName(null))))), 0, 1);
        print("DescribeScramRequest", new DescribeUserScramCredentialsRequestData().setUsers(List.of()), 0);
        print("DescribeScramResponse", new DescribeUserScramCredentialsResponseData().setThrottleTimeMs(4).setErrorMessage(null).setResults(List.of(
            new DescribeUserScramCredentialsResponseData.DescribeUserScramCredentialsResult().setUser("app").setErrorMessage(null).setCredentialInfos(List.of(
                new DescribeUserScramCredentialsResponseData.CredentialInfo().setMechanism((byte) 1).setIterations(4096),
                new DescribeUserScramCredentialsResponseData.CredentialInfo().setMechanism((byte) 2).setIterations(8192))),
            new DescribeUserScramCredentialsResponseData.DescribeUserScramCredentialsResult().setUser("gone").setErrorCode((short) 91).setErrorMessage("no"))), 0);
        DescribeLogDirsRequestData.DescribableLogDirTopicCollection dirs = new DescribeLogDirsRequestData.DescribableLogDirTopicCollection();
        dirs.add(new DescribeLogDirsRequestData.DescribableLogDirTopic().setTopic("orders").setPartitions(List.of(0, 1)));
        print("DescribeLogDirsRequest", new DescribeLogDirsRequestData().setTopics(dirs), 1, 2, 3, 4);
        DescribeLogDirsResponseData sizes = new DescribeLogDirsResponseData().setThrottleTimeMs(4).setResults(List.of(
            new DescribeLogDirsResponseData.DescribeLogDirsResult().setLogDir("/disk").setTopics(List.of(
                new DescribeLogDirsResponseData.DescribeLogDirsTopic().setName("orders").setPartitions(List.of(
                    new DescribeLogDirsResponseData.DescribeLogDirsPartition().setPartitionIndex(0).setPartitionSize(1L << 40).setOffsetLag(3),
                    new DescribeLogDirsResponseData.DescribeLogDirsPartition().setPartitionIndex(1).setPartitionSize(77).setIsFutureKey(true)))))));
        print("DescribeLogDirsResponse", sizes, 1, 2, 3, 4);
        print("DescribeLogDirsResponse.refused", new DescribeLogDirsResponseData().setErrorCode((short) 31), 3, 4);

        print("AlterReassignmentsRequest", new AlterPartitionReassignmentsRequestData().setTimeoutMs(10000).setTopics(List.of(
            new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName("orders").setPartitions(List.of(
                new AlterPartitionReassignmentsRequestData.ReassignablePartition().setPartitionIndex(0).setReplicas(List.of(2, 1)),
                new AlterPartitionReassignmentsRequestData.ReassignablePartition().setPartitionIndex(1).setReplicas(List.of(3)))))), 0);
        AlterPartitionReassignmentsResponseData.ReassignableTopicResponse moved0 = new AlterPartitionReassignmentsResponseData.ReassignableTopicResponse().setName("orders").setPartitions(List.of(
            new AlterPartitionReassignmentsResponseData.ReassignablePartitionResponse().setPartitionIndex(0).setErrorMessage(null),
            new AlterPartitionReassignmentsResponseData.ReassignablePartitionResponse().setPartitionIndex(1).setErrorCode((short) 39).setErrorMessage("no broker 3")));
        print("AlterReassignmentsResponse", new AlterPartitionReassignmentsResponseData().setThrottleTimeMs(3).setErrorMessage(null).setResponses(List.of(moved0)), 0);
        print("AlterReassignmentsResponse.refused", new AlterPartitionReassignmentsResponseData().setErrorCode((short) 41).setErrorMessage("not me"), 0);
        print("DescribeProducersRequest", new DescribeProducersRequestData().setTopics(new DescribeProducersRequestData.TopicRequestCollection(List.of(
            new DescribeProducersRequestData.TopicRequest().setName("orders").setPartitionIndexes(List.of(0, 1))).iterator())), 0);
        print("DescribeProducersResponse", new DescribeProducersResponseData().setThrottleTimeMs(1).setTopics(List.of(
            new DescribeProducersResponseData.TopicResponse().setName("orders").setPartitions(List.of(
                new DescribeProducersResponseData.PartitionResponse().setPartitionIndex(0).setActiveProducers(List.of(
                    new DescribeProducersResponseData.ProducerState().setProducerId(9).setProducerEpoch(2).setLastSequence(3).setLastTimestamp(4)
                        .setCoordinatorEpoch(5).setCurrentTxnStartOffset(6))),
                new DescribeProducersResponseData.PartitionResponse().setPartitionIndex(1).setErrorCode((short) 6).setErrorMessage("moved"))))), 0);
        print("DescribeTransactionsRequest", new DescribeTransactionsRequestData().setTransactionalIds(List.of("tx")), 0);
        DescribeTransactionsResponseData.TopicDataCollection inside = new DescribeTransactionsResponseData.TopicDataCollection();
        inside.add(new DescribeTransactionsResponseData.TopicData().setTopic("orders").setPartitions(List.of(0, 1)));
        print("DescribeTransactionsResponse", new DescribeTransactionsResponseData().setThrottleTimeMs(1).setTransactionStates(List.of(
            new DescribeTransactionsResponseData.TransactionState().setTransactionalId("tx").setTransactionState("Ongoing").setTransactionTimeoutMs(15000)
                .setTransactionStartTimeMs(1700000000000L).setProducerId(9).setProducerEpoch((short) 2).setTopics(inside))), 0);
        print("ListTransactionsRequest", new ListTransactionsRequestData().setStateFilters(List.of("Ongoing")).setProducerIdFilters(List.of(9L)), 0);
        print("ListTransactionsResponse", new ListTransactionsResponseData().setThrottleTimeMs(1).setUnknownStateFilters(List.of("Odd")).setTransactionStates(List.of(
            new ListTransactionsResponseData.TransactionState().setTransactionalId("tx").setProducerId(9).setTransactionState("Ongoing"))), 0);
        print("DescribeShareOffsetsRequest", new DescribeShareGroupOffsetsRequestData().setGroups(List.of(
            new DescribeShareGroupOffsetsRequestData.DescribeShareGroupOffsetsRequestGroup().setGroupId("g").setTopics(null))), 1);
        print("DescribeShareOffsetsResponse", new DescribeShareGroupOffsetsResponseData().setThrottleTimeMs(2).setGroups(List.of(
            new DescribeShareGroupOffsetsResponseData.DescribeShareGroupOffsetsResponseGroup().setGroupId("g").setTopics(List.of(
                new DescribeShareGroupOffsetsResponseData.DescribeShareGroupOffsetsResponseTopic().setTopicName("orders").setTopicId(ONE).setPartitions(List.of(
                    new DescribeShareGroupOffsetsResponseData.DescribeShareGroupOffsetsResponsePartition().setPartitionIndex(0).setStartOffset(55).setLeaderEpoch(4),
                    new DescribeShareGroupOffsetsResponseData.DescribeShareGroupOffsetsResponsePartition().setPartitionIndex(1).setStartOffset(-1)
                        .setErrorCode((short) 29).setErrorMessage("no"))))),
            new DescribeShareGroupOffsetsResponseData.DescribeShareGroupOffsetsResponseGroup().setGroupId("h").setErrorCode((short) 69)
                .setErrorMessage("none").setTopics(List.of()))), 1);
        print("AlterShareOffsetsRequest", new AlterShareGroupOffsetsRequestData().setGroupId("g").setTopics(
            new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopicCollection(List.of(
                new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopic().setTopicName("orders").setPartitions(List.of(
                    new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestPartition().setPartitionIndex(2).setStartOffset(55)))).iterator())), 0);
        print("AlterShareOffsetsResponse", new AlterShareGroupOffsetsResponseData().setThrottleTimeMs(1).setErrorCode((short) 0).setResponses(
            new AlterShareGroupOffsetsResponseData.AlterShareGroupOffsetsResponseTopicCollection(List.of(
                new AlterShareGroupOffsetsResponseData.AlterShareGroupOffsetsResponseTopic().setTopicName("orders").setTopicId(ONE).setPartitions(List.of(
                    new AlterShareGroupOffsetsResponseData.AlterShareGroupOffsetsResponsePartition().setPartitionIndex(2).setErrorCode((short) 3).setErrorMessage("no")))).iterator())), 0);

        CreateTopicsRequestData.CreatableTopicConfigCollection settings = new CreateTopicsRequestData.CreatableTopicConfigCollection();
        settings.add(new CreateTopicsRequestData.CreatableTopicConfig().setName("retention.ms").setValue("1000"));
        CreateTopicsRequestData.CreatableTopicCollection made = new CreateTopicsRequestData.CreatableTopicCollection();
        made.add(new CreateTopicsRequestData.CreatableTopic().setName("orders").setNumPartitions(3).setReplicationFactor((short) 2).setConfigs(settings));
        made.add(new CreateTopicsRequestData.CreatableTopic().setName("päy").setNumPartitions(-1).setReplicationFactor((short) -1));
        print("CreateTopicsRequest", new CreateTopicsRequestData().setTopics(made).setTimeoutMs(10000).setValidateOnly(true), 2, 3, 4, 5, 6, 7);
        CreateTopicsResponseData.CreatableTopicResultCollection created = new CreateTopicsResponseData.CreatableTopicResultCollection();
        created.add(new CreateTopicsResponseData.CreatableTopicResult().setName("orders").setTopicId(ONE).setErrorMessage(null).setNumPartitions(3)
            .setReplicationFactor((short) 2).setConfigs(List.of(new CreateTopicsResponseData.CreatableTopicConfigs().setName("retention.ms").setValue("1000"))));
        created.add(new CreateTopicsResponseData.CreatableTopicResult().setName("päy").setErrorCode((short) 36).setErrorMessage("it exists"));
        print("CreateTopicsResponse", new CreateTopicsResponseData().setThrottleTimeMs(3).setTopics(created), 2, 3, 4, 5, 6, 7);
        print("DeleteTopicsRequest", new DeleteTopicsRequestData().setTopicNames(List.of("orders", "päy")).setTimeoutMs(10000), 1, 2, 3, 4, 5);
        print("DeleteTopicsRequest", new DeleteTopicsRequestData().setTopics(List.of(new DeleteTopicsRequestData.DeleteTopicState().setName(null).setTopicId(ONE),
            new DeleteTopicsRequestData.DeleteTopicState().setName("päy"))).setTimeoutMs(10000), 6);
        for (short version = 1; version <= 5; version++) {
            DeleteTopicsResponseData.DeletableTopicResultCollection deleted = new DeleteTopicsResponseData.DeletableTopicResultCollection();
            deleted.add(new DeleteTopicsResponseData.DeletableTopicResult().setName("orders"));
            deleted.add(new DeleteTopicsResponseData.DeletableTopicResult().setName("päy").setErrorCode((short) 3).setErrorMessage(version < 5 ? null : "gone"));
            print(version < 5 ? "OldDeleteTopicsResponse" : "DeleteTopicsResponse", new DeleteTopicsResponseData().setThrottleTimeMs(3).setResponses(deleted), version);
        }
        DeleteTopicsResponseData.DeletableTopicResultCollection missing = new DeleteTopicsResponseData.DeletableTopicResultCollection();
        missing.add(new DeleteTopicsResponseData.DeletableTopicResult().setName(null).setTopicId(ONE).setErrorCode((short) 100).setErrorMessage("gone"));
        missing.add(new DeleteTopicsResponseData.DeletableTopicResult().setName("päy").setErrorCode((short) 3));
        missing.add(new DeleteTopicsResponseData.DeletableTopicResult().setName("other").setTopicId(TWO));
        print("DeleteTopicsByIdResponse", new DeleteTopicsResponseData().setThrottleTimeMs(3).setResponses(missing), 6);
        CreatePartitionsRequestData.CreatePartitionsTopicCollection grown = new CreatePartitionsRequestData.CreatePartitionsTopicCollection();
        grown.add(new CreatePartitionsRequestData.CreatePartitionsTopic().setName("orders").setCount(6).setAssignments(null));
        print("CreatePartitionsRequest", new CreatePartitionsRequestData().setTopics(grown).setTimeoutMs(10000).setValidateOnly(true), 0, 1, 2, 3);
        print("CreatePartitionsResponse", new CreatePartitionsResponseData().setThrottleTimeMs(3).setResults(List.of(
            new CreatePartitionsResponseData.CreatePartitionsTopicResult().setName("orders").setErrorMessage(null),
            new CreatePartitionsResponseData.CreatePartitionsTopicResult().setName("päy").setErrorCode((short) 37).setErrorMessage("it has 6"))), 0, 1, 2, 3);
        IncrementalAlterConfigsRequestData.AlterableConfigCollection edits = new IncrementalAlterConfigsRequestData.AlterableConfigCollection();
        edits.add(new IncrementalAlterConfigsRequestData.AlterableConfig().setName("retention.ms").setConfigOperation((byte) 0).setValue("1000"));
        edits.add(new IncrementalAlterConfigsRequestData.AlterableConfig().setName("flush.ms").setConfigOperation((byte) 1).setValue(null));
        IncrementalAlterConfigsRequestData.AlterConfigsResourceCollection edited = new IncrementalAlterConfigsRequestData.AlterConfigsResourceCollection();
        edited.add(new IncrementalAlterConfigsRequestData.AlterConfigsResource().setResourceType((byte) 2).setResourceName("orders").setConfigs(edits));
        print("AlterConfigsRequest", new IncrementalAlterConfigsRequestData().setResources(edited).setValidateOnly(true), 0, 1);
        print("AlterConfigsResponse", new IncrementalAlterConfigsResponseData().setThrottleTimeMs(3).setResponses(List.of(
            new IncrementalAlterConfigsResponseData.AlterConfigsResourceResponse().setErrorMessage(null).setResourceType((byte) 2).setResourceName("orders"),
            new IncrementalAlterConfigsResponseData.AlterConfigsResourceResponse().setErrorCode((short) 40).setErrorMessage("no").setResourceType((byte) 2).setResourceName("päy"))), 0, 1);
        print("CreateAclsRequest", new CreateAclsRequestData().setCreations(List.of(new CreateAclsRequestData.AclCreation().setResourceType((byte) 2)
            .setResourceName("orders").setResourcePatternType((byte) 4).setPrincipal("User:app").setHost("*").setOperation((byte) 3).setPermissionType((byte) 3))), 1, 2, 3);
        print("CreateAclsResponse", new CreateAclsResponseData().setThrottleTimeMs(3).setResults(List.of(
            new CreateAclsResponseData.AclCreationResult().setErrorMessage(null),
            new CreateAclsResponseData.AclCreationResult().setErrorCode((short) 54).setErrorMessage("no"))), 1, 2, 3);
        print("DeleteAclsRequest", new DeleteAclsRequestData().setFilters(List.of(new DeleteAclsRequestData.DeleteAclsFilter().setResourceTypeFilter((byte) 2)
            .setResourceNameFilter("orders").setPatternTypeFilter((byte) 4).setPrincipalFilter("User:app").setHostFilter("*").setOperation((byte) 3).setPermissionType((byte) 3))), 1, 2, 3);
        print("DeleteAclsResponse", new DeleteAclsResponseData().setThrottleTimeMs(3).setFilterResults(List.of(
            new DeleteAclsResponseData.DeleteAclsFilterResult().setErrorMessage(null).setMatchingAcls(List.of(
                new DeleteAclsResponseData.DeleteAclsMatchingAcl().setErrorMessage(null).setResourceType((byte) 2).setResourceName("orders").setPatternType((byte) 4)
                    .setPrincipal("User:app").setHost("*").setOperation((byte) 3).setPermissionType((byte) 3))),
            new DeleteAclsResponseData.DeleteAclsFilterResult().setErrorCode((short) 54).setErrorMessage("no"))), 1, 2, 3);
        print("GroupRightsRequest", new DescribeGroupsRequestData().setGroups(List.of("g", "h")).setIncludeAuthorizedOperations(true), 3, 4, 5);
        for (short version = 3; version <= 5; version++) {
            print("GroupRightsResponse", new DescribeGroupsResponseData().setThrottleTimeMs(3).setGroups(List.of(
                new DescribeGroupsResponseData.DescribedGroup().setGroupId("g").setGroupState("Stable").setProtocolType("consumer").setProtocolData("range")
                    .setMembers(List.of(new DescribeGroupsResponseData.DescribedGroupMember().setMemberId("m").setGroupInstanceId(version < 4 ? null : "i").setClientId("c")
                        .setClientHost("/h").setMemberMetadata(new byte[] {1, 2}).setMemberAssignment(new byte[] {0, 0, 0, 0, 0, 1, 0, 1, 111, 0, 0, 0, 1, 0, 0, 0, 7, -1, -1, -1, -1}))).setAuthorizedOperations(1 << 3 | 1 << 8),
                new DescribeGroupsResponseData.DescribedGroup().setGroupId("h").setErrorCode((short) 30))), version);
        }
        print("DescribeConsumerGroupsRequest", new ConsumerGroupDescribeRequestData().setGroupIds(List.of("g", "h")), 0, 1);
        for (short version = 0; version <= 1; version++) {
            print("DescribeConsumerGroupsResponse", new ConsumerGroupDescribeResponseData().setThrottleTimeMs(3).setGroups(List.of(
                new ConsumerGroupDescribeResponseData.DescribedGroup().setGroupId("g").setGroupState("Stable").setGroupEpoch(4).setAssignmentEpoch(4).setAssignorName("uniform")
                    .setMembers(List.of(new ConsumerGroupDescribeResponseData.Member().setMemberId("m").setInstanceId("i").setRackId(null).setMemberEpoch(4).setClientId("c").setClientHost("/h")
                        .setSubscribedTopicNames(List.of("orders")).setSubscribedTopicRegex(null)
                        .setAssignment(new ConsumerGroupDescribeResponseData.Assignment().setTopicPartitions(List.of(
                            new ConsumerGroupDescribeResponseData.TopicPartitions().setTopicId(ONE).setTopicName("orders").setPartitions(List.of(0, 3)))))
                        .setTargetAssignment(new ConsumerGroupDescribeResponseData.Assignment().setTopicPartitions(List.of(
                            new ConsumerGroupDescribeResponseData.TopicPartitions().setTopicId(ONE).setTopicName("orders").setPartitions(List.of(0))))))),
                new ConsumerGroupDescribeResponseData.DescribedGroup().setGroupId("h").setErrorCode((short) 69).setErrorMessage("no"))), version);
        }
        print("RightsRequest", new MetadataRequestData().setAllowAutoTopicCreation(false).setIncludeTopicAuthorizedOperations(true).setTopics(List.of(
            new MetadataRequestData.MetadataRequestTopic().setName("orders"))), 11, 12);
        print("ClusterRightsRequest", new MetadataRequestData().setAllowAutoTopicCreation(false).setIncludeTopicAuthorizedOperations(true)
            .setIncludeClusterAuthorizedOperations(true).setTopics(List.of()), 8, 9, 10);
        print("ClusterRightsResponse", new MetadataResponseData().setThrottleTimeMs(3).setClusterId("abc").setControllerId(1).setClusterAuthorizedOperations(1 << 5 | 1 << 8), 8, 9, 10);
        MetadataResponseData.MetadataResponseTopicCollection allowed = new MetadataResponseData.MetadataResponseTopicCollection();
        allowed.add(new MetadataResponseData.MetadataResponseTopic().setName("orders").setTopicId(ONE).setPartitions(List.of()).setTopicAuthorizedOperations(1 << 3 | 1 << 8));
        print("RightsResponse", new MetadataResponseData().setThrottleTimeMs(3).setClusterId("abc").setControllerId(1).setTopics(allowed), 11, 12);
    }
}
