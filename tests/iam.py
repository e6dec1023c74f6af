"""What Amazon MSK does when a client logs in by IAM: a broker's handler that has each token checked.

The handler runs in the broker and asks `TokenChecker`, which checks the form of the signed address, its time,
and its signature by the rules of Signature Version 4, written from AWS's documentation. The keys of users are
given; those of assumed roles are the ones that moto's STS gave out.
"""

import base64
import hashlib
import hmac
import json
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit
from urllib.request import urlopen
from uuid import uuid4

REGION = "eu-west-1"
CLIENT_SECRET = "hush"  # of the client repl, at the token endpoint
HANDLER = "IamTokens"
_AGENT = "public class IamAgent { public static void premain(String arguments) {} }"
_SOURCE = """
import java.net.URI; import java.net.http.*; import java.util.*;
import javax.security.auth.callback.*; import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.*;

public class IamTokens implements AuthenticateCallbackHandler {
  public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}
  public void close() {}

  public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
    for (Callback callback : callbacks) {
      if (callback instanceof OAuthBearerValidatorCallback asked) validate(asked);
      else if (callback instanceof OAuthBearerExtensionsValidatorCallback more)
        for (String name : more.inputExtensions().map().keySet()) more.valid(name);
      else throw new UnsupportedCallbackException(callback);
    }
  }

  private void validate(OAuthBearerValidatorCallback asked) {
    try {
      HttpRequest request = HttpRequest.newBuilder(URI.create(System.getProperty("iam.checker")))
          .POST(HttpRequest.BodyPublishers.ofString(asked.tokenValue())).build();
      HttpResponse<String> answer =
          HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
      if (answer.statusCode() != 200) { asked.error("access_denied", answer.body(), null); return; }
      String[] words = answer.body().split(" ");
      String value = asked.tokenValue(); long now = System.currentTimeMillis();
      asked.token(new OAuthBearerToken() {
        public String value() { return value; }
        public Set<String> scope() { return Set.of(); }
        public long lifetimeMs() { return Long.parseLong(words[1]); }
        public String principalName() { return words[0]; }
        public Long startTimeMs() { return now; }
      });
    } catch (Exception failed) { asked.error("server_error", failed.toString(), null); }
  }
}
"""


def handler_jar(folder: Path, java: str, classpath: str) -> Path:
    """Compiles the handler. An agent of the JVM is on the class path of the broker, and does nothing else."""
    folder.mkdir(parents=True)
    sources = {f"{HANDLER}.java": _SOURCE, "IamAgent.java": _AGENT}
    for name, text in sources.items():
        (folder / name).write_text(text)
    jars = ":".join(str(path) for path in Path(classpath).parent.glob("kafka-clients-*.jar"))
    compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-cp", jars]
    subprocess.run([*compiler, "-d", str(folder), *(str(folder / name) for name in sources)], check=True)
    jar = folder / "iam.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nPremain-Class: IamAgent\n")
        for compiled in folder.glob("*.class"):
            archive.write(compiled, compiled.name)
    return jar


@dataclass
class TokenChecker:
    """Checks tokens, and counts the logins of each access key. A token is accepted for `lifetime_s`."""

    keys: Mapping[str, str]  # secret keys of users, by access key
    sts: str | None = None  # moto's address
    lifetime_s: float = 900.0
    url: str = ""
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    issued: dict[str, float] = field(default_factory=dict)  # tokens of the token endpoint, with their ends

    def check(self, token: str) -> tuple[str, float]:
        """Returns the access key or `repl`, and when the login ends. Raises ValueError."""
        if token in self.issued:
            if self.issued[token] <= time.time():
                raise ValueError("the token has expired")
            return "repl", self.issued[token]
        url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
        given = dict(parse_qsl(url.query, strict_parsing=True))
        if (url.scheme, url.hostname, url.path) != ("https", f"kafka.{REGION}.amazonaws.com", "/"):
            raise ValueError(f"not an address of MSK in {REGION}")
        if given["Action"] != "kafka-cluster:Connect" or given["X-Amz-Algorithm"] != "AWS4-HMAC-SHA256":
            raise ValueError("not a request to connect")
        key, day, *scope = given["X-Amz-Credential"].split("/")
        if scope != [REGION, "kafka-cluster", "aws4_request"]:
            raise ValueError("signed for another service or region")
        signed_at = datetime.strptime(given["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if not signed_at - 60 <= time.time() < signed_at + int(given["X-Amz-Expires"]):
            raise ValueError("the token has expired")
        secret, session = self._secret(key)
        if given.get("X-Amz-Security-Token") != session:
            raise ValueError("the session token is another one")
        query = "&".join(
            f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
            for name, value in sorted(given.items())
            if name not in ("X-Amz-Signature", "User-Agent")
        )
        request = f"GET\n/\n{query}\nhost:{url.hostname}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{given['X-Amz-Date']}\n{'/'.join((day, *scope))}\n{digest}"
        signing = f"AWS4{secret}".encode()
        for part in (day, *scope):
            signing = hmac.digest(signing, part.encode(), "sha256")
        if not hmac.compare_digest(
            hmac.digest(signing, text.encode(), "sha256").hex(), given["X-Amz-Signature"]
        ):
            raise ValueError("the signature does not match")
        return key, time.time() + self.lifetime_s

    def issue(self, authorization: str) -> str:
        """Returns the response of a token endpoint to the client repl. Raises ValueError."""
        if authorization != f"Basic {base64.b64encode(b'repl:' + CLIENT_SECRET.encode()).decode()}":
            raise ValueError("unknown client")
        token = f"{uuid4()}"
        self.issued[token] = time.time() + self.lifetime_s
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": int(self.lifetime_s)})

    def _secret(self, key: str) -> tuple[str, str | None]:
        if key in self.keys:
            return self.keys[key], None
        if self.sts is not None:
            with urlopen(f"{self.sts}/moto-api/data.json", timeout=10) as answer:
                for role in json.load(answer).get("sts", {}).get("AssumedRole", []):
                    if role["access_key_id"] == key:
                        return role["secret_access_key"], role["session_token"]
        raise ValueError("the access key is not known")


@contextmanager
def checking(checker: TokenChecker) -> Iterator[TokenChecker]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            token = self.rfile.read(int(self.headers["Content-Length"])).decode()
            try:
                if self.path == "/token":
                    self._answer(200, checker.issue(self.headers["Authorization"]))
                    return
                key, until = checker.check(token)
            except (ValueError, KeyError) as error:
                checker.refused.append(str(error))
                self._answer(403, str(error))
            else:
                checker.accepted.append(key)
                self._answer(200, f"{key} {int(until * 1000)}")

        def _answer(self, code: int, text: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        checker.url = f"http://127.0.0.1:{server.server_port}/"
        try:
            yield checker
        finally:
            server.shutdown()
            thread.join()
