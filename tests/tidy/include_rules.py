"""Who may include whom. The first rule whose folder contains the file decides."""
import re

# Libraries, by the beginning of what is included. Anything else with a slash in it has to be added here first.
LIBRARIES = [
    ("caf", r"caf/"),
    ("capnp", r"(capnp|kj)/|.*\.capnp\.h$"),
    ("torch", r"(torch|ATen|c10|caffe2)/"),
    ("asio", r"boost/asio"),
    ("boost", r"boost/"),
    ("cli11", r"CLI/"),
    ("curl", r"curl/"),
    ("doctest", r"doctest/"),
    ("openssl", r"openssl/"),
    ("png", r"(png|zlib)\.h$"),
    ("rapidcheck", r"rapidcheck"),
    ("pugixml", r"pugixml\.hpp$"),
    ("readline", r"readline/"),
    ("rocksdb", r"rocksdb/"),
    ("spdlog", r"(spdlog|fmt)/"),
    ("toml", r"toml\+\+/"),
    ("xxhash", r"xxhash\.h$"),
    ("zstd", r"zstd\.h$"),
    ("system", r"(sys|net|netinet|arpa|linux|bits|experimental|sanitizer)/|[^/]*$"),
]
TOP = ("actors", "chaos", "coordinator", "kernels", "serving", "storage", "tests", "worker")
ANY = object()


class Rule:
    def __init__(self, folder, project, libraries, why):
        self.folder, self.project, self.libraries, self.why = folder, project, libraries, why

    def covers(self, name):
        return re.match(self.folder, name) is not None


LOGIC = "logic decides and does no I/O: it sees actors/base and itself"
RULES = [
    Rule(r"actors/base/", ["actors/base"], {"system"}, "base sees the standard library alone"),
    Rule(r"actors/wire/", ["actors/base", "actors/wire"], {"system", "caf"}, "wire sees base and CAF"),
    Rule(r"actors/tls/", ["actors/base", "actors/tls"], {"system", "openssl"}, "tls sees base and OpenSSL"),
    Rule(r"actors/transport/", ["actors/base", "actors/tls", "actors/transport"], {"system", "asio", "boost", "openssl", "xxhash"},
         "links know of no actors"),
    Rule(r"actors/runtime/", ["actors/base", "actors/tls", "actors/wire", "actors/runtime"],
         {"system", "caf", "toml", "spdlog", "openssl"}, "runtime sees wire, base, CAF, toml++ and spdlog"),
    Rule(r"coordinator/logic/", ["actors/base", "coordinator/logic"], {"system"}, LOGIC),
    Rule(r"coordinator/(admin|console)/", ["actors", "coordinator", "storage"],
         {"system", "caf", "capnp", "boost", "cli11", "readline"}, "the admin RPC's schema stays here"),
    Rule(r"coordinator/", ["actors", "coordinator", "storage"],
         {"system", "caf", "boost", "cli11", "openssl", "rocksdb", "toml", "xxhash"},
         "the coordinator sees its own logic, actors and storage; Cap'n Proto only in admin and console"),
    Rule(r"worker/logic/", ["actors/base", "worker/logic"], {"system", "xxhash"}, LOGIC),
    Rule(r"worker/(model|trainer|sampler)/",
         ["actors/base", "worker/model", "worker/trainer", "worker/sampler", "worker/data", "kernels"],
         {"system", "torch", "xxhash", "png"}, "the numbers of training know of no actors and no plans"),
    Rule(r"worker/node/", ["actors", "worker"], {"system", "caf", "cli11", "boost", "curl"},
         "an agent starts workers and has no part in what they do"),
    Rule(r"worker/", ["actors", "worker", "storage", "kernels"],
         {"system", "caf", "cli11", "boost", "openssl", "xxhash", "png", "toml"},
         "LibTorch only in worker/{model,trainer,sampler}, Cap'n Proto not at all"),
    Rule(r"serving/logic/", ["actors/base", "serving/logic"], {"system"}, LOGIC),
    Rule(r"serving/", ["actors", "serving"], {"system", "caf", "cli11", "boost", "openssl"},
         "coordinator, worker and serving share actors alone"),
    Rule(r"storage/s3/", ["actors/base", "storage"], {"system", "curl", "openssl", "pugixml"},
         "only the S3 tier speaks HTTP"),
    Rule(r"storage/", ["actors/base", "storage"], {"system", "boost", "rocksdb", "openssl", "xxhash", "zstd"},
         "storage sees base"),
    Rule(r"kernels/binding", ["actors/base", "kernels"], {"system", "torch"}, "kernels see base"),
    Rule(r"kernels/", ["actors/base", "kernels"], {"system", "xxhash"}, "LibTorch only in the kernels' binding"),
    Rule(r"chaos/sim/", ["actors/base", "coordinator/logic", "worker/logic", "chaos/sim"],
         {"system", "xxhash", "cli11"}, "the simulator runs the logic alone"),
    Rule(r"(tests|chaos)/", ANY, ANY, ""),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def library_of(included):
    for name, pattern in LIBRARIES:
        if re.match(pattern, included):
            return name
    return None


def check_includes(name, text):
    """Yields (line, message) for each include that the file's folder may not have."""
    rule = next((r for r in RULES if r.covers(name)), None)
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        included = match.group(2)
        message = check_one(name, rule, included)
        if message:
            yield number, f"includes {included}: {message}"


def check_one(name, rule, included):
    if rule is None:
        return "no include rule covers this folder"
    top = included.split("/")[0]
    library = library_of(included)
    if library != "capnp" and "/" in included and top in TOP:
        if top in ("tests", "chaos") and name.split("/")[0] not in ("tests", "chaos"):
            return "nothing depends on tests or chaos"
        if rule.project is ANY or any(included.startswith(p + "/") for p in rule.project):
            return None
        return rule.why
    if library is None:
        return "a library that tests/tidy/include_rules.py does not know"
    if name.endswith((".cu", ".cuh")) and library == "caf":
        return "CAF never meets a .cu"
    if rule.libraries is ANY or library in rule.libraries:
        return None
    return rule.why
