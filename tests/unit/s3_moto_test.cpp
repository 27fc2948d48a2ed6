// The S3 tier against moto's service, which checks signatures with botocore and keeps what it is given as S3
// does.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <random>
#include <sstream>

#include "storage/checkpoint_reader.hpp"
#include "storage/s3/mirror.hpp"
#include "tests/unit/certificates.hpp"
#include "tests/unit/fake_s3.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;
using namespace perdura::test;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

// The service, ended with the object.
class moto {
 public:
  explicit moto(const std::string& certificate = "", const std::string& key = "") {
    int in[2], out[2];
    REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      const char* tls = certificate.empty() ? nullptr : certificate.c_str();
      ::execlp(PERDURA_S3_PYTHON, PERDURA_S3_PYTHON, "-B", "-W", "ignore", PERDURA_MOTO_SERVER, tls,
               key.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    std::string line;
    for (char c = 0; ::read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    ::close(out[0]);
    std::istringstream words(line);
    std::string word, secret_key, token;
    words >> word >> port_ >> access_key_ >> secret_key >> token;
    is_there_ = word == "ready";
    if (!is_there_) MESSAGE("SKIPPED: no moto: " << line);
    secret_ = s3::secret(secret_key);
    token_ = s3::secret(token);
  }
  ~moto() {
    ::close(input_);
    ::waitpid(pid_, nullptr, 0);
  }
  moto(const moto&) = delete;
  moto& operator=(const moto&) = delete;

  explicit operator bool() const { return is_there_; }
  std::uint16_t port() const { return port_; }
  // Each test has a prefix of its own.
  s3::s3_options options(const std::string& prefix, const std::string& url) const {
    auto o = options_at(url);
    o.prefix = prefix;
    o.limits.stall = std::chrono::seconds(30);
    o.who = [this] { return result<s3::credentials>({access_key_, secret_, token_}); };
    return o;
  }
  s3::s3_options options(const std::string& prefix) const {
    return options(prefix, "http://127.0.0.1:" + std::to_string(port_));
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  bool is_there_ = false;
  std::uint16_t port_ = 0;
  std::string access_key_;
  s3::secret secret_, token_;
};

// It takes seconds to start.
const moto& shared() {
  static const moto service;
  return service;
}

std::string some_text(std::size_t size, std::uint32_t seed) {
  const auto bytes = some_bytes(size, seed);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void make_checkpoint(const std::filesystem::path& store, const checkpoint_key& key) {
  auto m = written_checkpoint(store, key);
  sort_chunks(m);
  object_folder(store).put_if_absent(manifest_object(key), encode(m)).value();
}

}  // namespace

TEST_CASE("small objects: put once, read, ranged, listed, removed") {
  const moto& service = shared();
  if (!service) return;
  const auto store = store_at(service.options("small"));
  CHECK(store->size("manifests/j/1.json").value() == std::nullopt);
  CHECK(store->get("manifests/j/1.json").failure().code == errc::not_found);
  store->put_if_absent("manifests/j/1.json", "hello").value();
  CHECK(store->put_if_absent("manifests/j/1.json", "other").failure().code == errc::already_exists);
  CHECK(store->get("manifests/j/1.json").value() == "hello");
  CHECK(store->size("manifests/j/1.json").value() == 5U);
  std::array<std::byte, 3> part{};
  store->get_range("manifests/j/1.json", 1, part).value();
  CHECK(std::memcmp(part.data(), "ell", 3) == 0);
  store->put_if_absent("tombstones/j/1.json", "").value();
  CHECK(store->list("manifests").value() == std::vector<object_entry>{{"manifests/j/1.json", 5}});
  store->remove("manifests/j/1.json").value();
  store->remove("manifests/j/1.json").value();
  CHECK(store->list("manifests").value().empty());
}

TEST_CASE("signatures count: a wrong secret, a wrong token and a missing bucket are refused by name") {
  const moto& service = shared();
  if (!service) return;
  const auto failure_with = [&](const std::function<void(s3::credentials&)>& spoil) {
    auto options = service.options("refused");
    options.who = [spoil, inner = options.who] {
      auto who = inner();
      spoil(*who);
      return who;
    };
    return store_at(options)->get("a").failure();
  };
  const auto wrong = failure_with([](auto& who) { who.secret_key = s3::secret("wrong"); });
  CHECK(wrong.code == errc::refused);
  CHECK(wrong.message.find("SignatureDoesNotMatch") != std::string::npos);
  CHECK(failure_with([](auto& who) { who.session_token = s3::secret("wrong"); }).code == errc::refused);
  auto options = service.options("refused");
  options.bucket = "nobucket";
  CHECK(store_at(options)->get("a").failure().message.find("NoSuchBucket") != std::string::npos);
}

TEST_CASE("lists of more than a page come whole") {
  const moto& service = shared();
  if (!service) return;
  const auto store = store_at(service.options("runs/a"));
  std::vector<object_entry> expected;
  for (int i = 1000; i < 2005; ++i) expected.push_back({"listed/" + std::to_string(i), 1});
  CHECK(store->list("listed").value() == expected);
}

TEST_CASE("a file in parts arrives whole, goes on after a failure, and is put once") {
  const moto& service = shared();
  if (!service) return;
  fault_proxy proxy(service.port());
  auto options = service.options("parts", proxy.url());
  options.retry.attempts_max = 2;
  const auto store = store_at(options);
  const temporary_folder folder;
  const auto bytes = some_text(11 * mebibyte, 1);
  write_file(folder.path() / "file", bytes);
  proxy.set([](const web_request& r) -> std::optional<web_reply> {
    if (r.target.find("partNumber=3") == r.target.npos) return std::nullopt;
    return web_reply{503, "<Error><Code>SlowDown</Code></Error>"};
  });
  CHECK(store->put_file("packs/a", folder.path() / "file", put_mode::if_absent).failure().code ==
        errc::unavailable);
  proxy.set({});
  const auto before = proxy.count("PUT");
  store->put_file("packs/a", folder.path() / "file", put_mode::if_absent).value();
  CHECK(proxy.count("PUT") - before == 1);
  CHECK(store->size("packs/a").value() == bytes.size());
  std::vector<std::byte> back(bytes.size());
  store->get_range("packs/a", 0, back).value();
  CHECK(std::memcmp(back.data(), bytes.data(), bytes.size()) == 0);
  CHECK(store->put_file("packs/a", folder.path() / "file", put_mode::if_absent).failure().code ==
        errc::already_exists);
  write_file(folder.path() / "file", some_text(12 * mebibyte, 2));
  store->put_file("packs/a", folder.path() / "file", put_mode::replace).value();
  CHECK(store->size("packs/a").value() == 12 * mebibyte);
}

TEST_CASE("checkpoints go there and come back through a proxy that fails at random") {
  const moto& service = shared();
  if (!service) return;
  fault_proxy proxy(service.port());
  auto options = service.options("checkpoints", proxy.url());
  options.retry.attempts_max = 30;
  const auto tier = store_at(options);
  auto random = std::make_shared<std::mt19937>(5);
  proxy.set(
      [random](const web_request&) -> std::optional<web_reply> {
        if ((*random)() % 8 != 0) return std::nullopt;
        return web_reply{503, "<Error><Code>SlowDown</Code></Error>"};
      },
      [random](const web_request&, web_reply& reply) {
        reply.is_dropped = reply.is_dropped || (*random)() % 8 == 0;
      });
  const temporary_folder here, there;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    make_checkpoint(here.path(), at_step(step));
    mirror(*tier, here.path()).push(at_step(step)).value();
  }
  mirror(*tier, here.path()).keep_newest("job-1", 2).value();
  mirror back(*tier, there.path());
  const auto shown = back.list("").value();
  CHECK(shown == std::vector{at_step(3), at_step(2)});
  for (const auto& key : shown) {
    back.fetch(key).value();
    CHECK(checkpoint_reader::open(there.path(), key)->verify().empty());
  }
  CHECK(tier->list("packs").value().size() == 4);
}

TEST_CASE("a certificate is trusted only if its authority is") {
  const authority ca;
  const auto files = ca.issue({.who = {tls::role::coordinator, "service"}, .hosts = {"127.0.0.1"}});
  const moto service(files.certificate.string(), files.key.string());
  if (!service) return;
  auto options = service.options("tls", "https://127.0.0.1:" + std::to_string(service.port()));
  const auto refused = store_at(options)->size("a");
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.failure().code == errc::refused);
  CHECK(refused.failure().message.find("certificate") != std::string::npos);
  options.ca_file = (ca.folder() / "ca.pem").string();
  const auto trusted = store_at(options)->size("a");
  CHECK_MESSAGE(trusted.has_value(), (trusted ? "" : trusted.failure().message));
  options.endpoint = "https://localhost:" + std::to_string(service.port());
  CHECK(store_at(options)->size("a").failure().message.find("SSL") != std::string::npos);
}
