"""Our AWS signatures beside botocore's, on requests with all that is odd in keys, queries and headers.

    PYTHON sigv4_parity.py SIGN_PROGRAM

PYTHON must have botocore (configs/install-deps --dev makes one); without it the test is skipped, and says so.
"""
import datetime
import json
import random
import subprocess
import sys
import urllib.parse

SKIPPED = 77
CASES = 500
SEED = 1

try:
    import botocore
    from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
except ImportError as missing:
    print(f"SKIPPED: no botocore in {sys.executable} ({missing}); configs/install-deps --dev installs one")
    sys.exit(SKIPPED)

ODD = ["plain", "a b", "a+b", "a%20b", "%", "a=b&c", "~tilde-._", "*()'!", "$,:;@", "é", "日本", "\U0001f600", "a//b",
       "./..", "#?", '"<>\\^`{|}', "\x7f", "UPPER", "0"]
QUERIES = [[("uploads", "")], [("uploadId", "a+/=b"), ("partNumber", "7")], [("list-type", "2"), ("prefix", "a b/"),
           ("continuation-token", "x/+=="), ("encoding-type", "url")], [("a", "2"), ("a", "1"), ("a", "")],
           [("B", "1"), ("b", "1"), ("a-b", "1"), ("a", "1")], []]


def case(draw: random.Random) -> dict:
    at = draw.randrange(0, 4_000_000_000)
    stamp = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime(SIGV4_TIMESTAMP)
    payload = draw.choice(["UNSIGNED-PAYLOAD", "%064x" % draw.getrandbits(256)])
    query = list(draw.choice(QUERIES)) + [(draw.choice(ODD), draw.choice(ODD + [""])) for _ in range(draw.randrange(3))]
    draw.shuffle(query)
    headers = [["host", draw.choice(["s3.example.com", "bucket.s3.example.com:8443"])], ["x-amz-date", stamp],
               ["x-amz-content-sha256", payload]]
    if draw.random() < 0.5:
        headers.append(["X-Amz-Security-Token", "token/+=="])
    if draw.random() < 0.5:
        headers.append(["x-amz-meta-odd", "  two   words  "])
    if draw.random() < 0.5:
        headers += [["If-None-Match", "*"], ["content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="]]
    return {"method": draw.choice(["GET", "PUT", "POST", "DELETE", "HEAD"]), "at": at, "payload_hash": payload,
            "path": "/bucket/" + "/".join(draw.choice(ODD) for _ in range(draw.randrange(4))), "query": query,
            "headers": headers, "region": draw.choice(["us-east-1", "eu-central-1"]), "secret": draw.choice(["s", "a/b+c=="])}


def theirs(c: dict) -> dict:
    headers = dict(c["headers"])
    host = headers.pop("host")
    url = f"https://{host}" + urllib.parse.quote(c["path"], safe="/-._~")
    request = AWSRequest(method=c["method"], url=url, params=[tuple(q) for q in c["query"]], headers=headers)
    stamp = headers["x-amz-date"]
    request.context["timestamp"] = stamp
    auth = S3SigV4Auth(Credentials("AKID", c["secret"]), "s3", c["region"])
    # botocore takes the payload's hash from this header, as it does for a body that it must not read.
    canonical = auth.canonical_request(request)
    return {"canonical": canonical, "signature": auth.signature(auth.string_to_sign(request, canonical), request)}


def main() -> int:
    draw = random.Random(SEED)
    cases = [case(draw) for _ in range(CASES)]
    lines = "".join(json.dumps(c) + "\n" for c in cases)
    done = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, timeout=120, check=True)
    ours = [json.loads(line) for line in done.stdout.splitlines()]
    if len(ours) != CASES:
        print(f"FAILED: {len(ours)} answers to {CASES} requests")
        return 1
    wrong = 0
    for c, mine in zip(cases, ours):
        other = theirs(c)
        if mine != other:
            wrong += 1
            if wrong <= 3:
                print(f"FAILED: {json.dumps(c)}\nours:   {mine}\ntheirs: {other}")
    print(f"{CASES} requests, {wrong} signed otherwise than by botocore {botocore.__version__} (seed {SEED})")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
