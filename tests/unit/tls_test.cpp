#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>

#include "actors/tls/certificate.hpp"
#include "actors/tls/proof.hpp"
#include "tests/unit/certificates.hpp"

using namespace perdura;
using tls::role;
using namespace std::chrono_literals;

namespace {

bool says(const error& e, const std::string& words) { return e.message.find(words) != std::string::npos; }

mode_t mode_of(const std::filesystem::path& file) {
  struct stat is {};
  REQUIRE(::stat(file.c_str(), &is) == 0);
  return is.st_mode & 0777U;
}

error load_failure(const std::filesystem::path& folder, role as) {
  const auto loaded = tls::load_identity(folder, as);
  REQUIRE_FALSE(loaded.has_value());
  return loaded.failure();
}

}  // namespace

TEST_CASE("what a CA issues is loaded with its role and name, and its files are private") {
  const test::authority ca;
  const auto files =
      ca.issue({.who = {role::worker, "node-1"}, .hosts = {"192.0.2.3", "node-1.example.org"}});
  const auto loaded = tls::load_identity(ca.machine("node-1"), role::worker);
  REQUIRE_MESSAGE(loaded.has_value(), (loaded ? "" : loaded.failure().message));
  CHECK((*loaded)->self == tls::subject{role::worker, "node-1"});
  CHECK(mode_of(files.key) == 0600);
  CHECK(mode_of(files.certificate) == 0600);
  CHECK(mode_of(ca.folder() / "ca.key") == 0600);
  const auto shown = tls::read_certificate((*loaded)->certificate);
  CHECK(tls::hosts_of(shown.get()) == std::vector<std::string>{"192.0.2.3", "node-1.example.org"});
}

TEST_CASE("files that are there are kept unless replacing them is asked for") {
  const test::authority ca;
  const auto again = tls::make_authority(ca.folder(), false);
  REQUIRE_FALSE(again.has_value());
  CHECK(again.failure().code == errc::already_exists);
  CHECK(says(again.failure(), "ca.pem is there already; --force"));

  const tls::issue_options node{.who = {role::node, "a"}, .hosts = {}};
  const auto files = ca.issue(node);
  const auto first = test::content_of(files.certificate);
  CHECK(tls::issue(ca.folder(), node, ca.machine("a"), false).failure().code == errc::already_exists);
  CHECK(test::content_of(files.certificate) == first);
  ca.issue(node, true);
  CHECK(test::content_of(files.certificate) != first);
}

TEST_CASE("a folder of another cluster is not mixed with ours") {
  const test::authority ca, other;
  other.issue({.who = {role::node, "a"}, .hosts = {}});
  const auto mixed =
      tls::issue(ca.folder(), {.who = {role::worker, "a"}, .hosts = {}}, other.machine("a"), false);
  REQUIRE_FALSE(mixed.has_value());
  CHECK(says(mixed.failure(), "another cluster's CA"));
}

TEST_CASE("names and hosts that could pass for others are refused") {
  const test::authority ca;
  const auto refused = [&](const std::string& name, const std::vector<std::string>& hosts) {
    return !tls::issue(ca.folder(), {.who = {role::node, name}, .hosts = hosts}, ca.machine("x"), false);
  };
  CHECK(refused("", {}));
  CHECK(refused("a/b", {}));
  CHECK(refused("../a", {}));
  CHECK(refused(std::string(41, 'a'), {}));
  CHECK(refused("a", {"*.perdura.internal"}));
  CHECK(refused("a", {"admin.perdura.internal"}));
  CHECK(refused("a", {"x,URI:perdura://admin/a"}));
  CHECK_FALSE(refused("a", {"fd00::1", "node-a"}));
}

TEST_CASE("what is missing, unreadable or no pair is refused by the file's name") {
  const test::authority ca;
  CHECK(says(load_failure(ca.machine("a"), role::node), "`perdura pki issue node"));
  const auto node = ca.issue({.who = {role::node, "a"}, .hosts = {}});
  CHECK(says(load_failure(ca.machine("a"), role::worker), "worker.pem is missing"));
  const auto worker = ca.issue({.who = {role::worker, "a"}, .hosts = {}});

  ::chmod(node.key.c_str(), 0640);
  CHECK(says(load_failure(ca.machine("a"), role::node), "chmod 600 " + node.key.string()));
  ::chmod(node.key.c_str(), 0600);

  std::filesystem::copy_file(worker.key, node.key, std::filesystem::copy_options::overwrite_existing);
  CHECK(says(load_failure(ca.machine("a"), role::node), "is not the key of"));
  std::ofstream(node.key) << "no key";
  CHECK(says(load_failure(ca.machine("a"), role::node), "node.key is no PEM key"));
  std::filesystem::copy_file(worker.certificate, node.certificate,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(worker.key, node.key, std::filesystem::copy_options::overwrite_existing);
  CHECK(says(load_failure(ca.machine("a"), role::node), "is the certificate of worker a, not of a node"));
}

TEST_CASE("certificates of another CA or out of their time are refused with the reason") {
  const test::authority ca, other;
  ca.issue({.who = {role::node, "a"}, .hosts = {}});
  const auto foreign = other.issue({.who = {role::worker, "a"}, .hosts = {}});
  for (const auto& file : {foreign.certificate, foreign.key})
    std::filesystem::copy_file(file, ca.machine("a") / file.filename());
  CHECK(says(load_failure(ca.machine("a"), role::worker), "issued by another cluster's CA"));

  ca.expired(role::node);
  CHECK(says(load_failure(ca.machine("expired"), role::node), "certificate has expired (on "));
  ca.identity({.who = {role::node, "early"}, .hosts = {}, .lasts = 3h, .begins = 2h});
  CHECK(says(load_failure(ca.machine("early"), role::node), "not yet valid"));
}

TEST_CASE("a list of certificates says what is wrong with each") {
  const test::authority ca;
  ca.issue({.who = {role::admin, "eve"}, .hosts = {}});
  ca.expired(role::node);
  const auto all = tls::list_certificates(ca.folder());
  REQUIRE(all.has_value());
  const auto find = [&](const std::string& who) {
    const auto at = std::find_if(all->begin(), all->end(), [&](const auto& c) { return c.who == who; });
    REQUIRE_MESSAGE(at != all->end(), who);
    return *at;
  };
  CHECK(find("CA").flaw.empty());
  CHECK(find("admin eve").flaw.empty());
  CHECK(find("admin eve").ends_unix_ms > find("admin eve").begins_unix_ms);
  CHECK(find("node expired").flaw.find("expired") != std::string::npos);
}

TEST_CASE("a proof holds for its text, role and CA alone") {
  const test::authority ca, other;
  const auto worker = ca.identity(role::worker, "w");
  const auto coordinator = ca.identity(role::coordinator, "c");
  const auto text = tls::hello_text({1, 2}, tls::fresh_nonce(), "hello");
  const auto proof = tls::prove(*worker, text);
  const auto checked = tls::check(proof, role::worker, text, *coordinator);
  REQUIRE_MESSAGE(checked.has_value(), (checked ? "" : checked.failure().message));
  CHECK(checked->name == "w");

  const auto refused = [&](const role_proof& p, role as, const std::string& about) {
    const auto r = tls::check(p, as, about, *coordinator);
    REQUIRE_FALSE(r.has_value());
    CHECK(r.failure().code == errc::refused);
    return r.failure().message;
  };
  CHECK(refused(proof, role::node, text).find("certificate of worker w, not of a node") != std::string::npos);
  CHECK(refused(proof, role::worker, text + "!").find("signed something else") != std::string::npos);
  CHECK(refused({}, role::worker, text).find("shows no certificate") != std::string::npos);
  CHECK(refused({"garbage", "x"}, role::worker, text).find("no certificate") != std::string::npos);
  CHECK(refused(tls::prove(*other.identity(role::worker), text), role::worker, text)
            .find("another cluster's CA") != std::string::npos);
  CHECK(refused(tls::prove(*ca.expired(role::worker), text), role::worker, text).find("expired") !=
        std::string::npos);
  auto borrowed = proof;
  borrowed.certificate = ca.identity(role::worker, "v")->certificate;
  CHECK(refused(borrowed, role::worker, text).find("does not hold the key") != std::string::npos);
}
