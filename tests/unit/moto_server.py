"""An S3 service for tests, on a free port of loopback, that checks signatures and knows one bucket.

    PYTHON moto_server.py [CERTIFICATE KEY]

Prints "ready PORT ACCESS_KEY SECRET_KEY SESSION_TOKEN" (made for this run alone) and ends with its standard input; prints
"missing WHY" where there is no moto (configs/install-deps --dev makes a Python that has it).
"""
import json
import logging
import os
import sys
import threading

# So many requests, those that make the bucket and a role, are answered without a signature.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"
try:
    import boto3
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server
except ImportError as missing:
    print(f"missing {missing} in {sys.executable}", flush=True)
    sys.exit(0)

LISTED = 1005


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    tls = tuple(sys.argv[1:3]) if len(sys.argv) > 2 else None
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=tls, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with_server = {"endpoint_url": f"http{'s' if tls else ''}://127.0.0.1:{server.port}", "region_name": "us-east-1",
                   "aws_access_key_id": "first", "aws_secret_access_key": "first", "verify": False}
    iam, s3 = boto3.client("iam", **with_server), boto3.client("s3", **with_server)
    role = iam.create_role(RoleName="tier", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}))
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_role_policy(RoleName="tier", PolicyName="all", PolicyDocument=json.dumps(everything))
    s3.create_bucket(Bucket="bucket")
    for number in range(LISTED):  # more than a page of a list
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object("bucket", f"runs/a/listed/{1000 + number}", b"x")
    session = boto3.client("sts", **with_server).assume_role(RoleArn=role["Role"]["Arn"], RoleSessionName="test")
    keys = session["Credentials"]
    print("ready", server.port, keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
