#include "actors/tls/authority.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "actors/tls/certificate.hpp"
#include "actors/tls/identity.hpp"

namespace perdura::tls {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using extension_ptr = std::unique_ptr<X509_EXTENSION, freed_by<X509_EXTENSION_free>>;

error openssl_error(const std::string& what) {
  return {errc::internal, "cannot " + what + ": OpenSSL says " + last_openssl_error()};
}

template <class Write>
std::string pem_of(Write write) {
  const bio_ptr memory(BIO_new(BIO_s_mem()));
  write(memory.get());
  char* data = nullptr;
  const auto size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* c) {
  return pem_of([&](BIO* b) { PEM_write_bio_X509(b, c); });
}
std::string pem_of(EVP_PKEY* k) {
  return pem_of([&](BIO* b) { PEM_write_bio_PrivateKey(b, k, nullptr, nullptr, 0, nullptr, nullptr); });
}

result<std::string> read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return error{errc::not_found, "cannot read " + file.string() + "; `perdura pki init` makes a CA"};
  return text.str();
}

result<void> check_absent(const fs::path& file, bool force) {
  std::error_code failed;
  if (force || !fs::exists(file, failed)) return {};
  return error{errc::already_exists, file.string() + " is there already; --force replaces it"};
}

// Beside it first, so that a file is there whole or not at all.
result<void> write(const fs::path& file, const std::string& text) {
  const auto failed = [&] {
    return error{errc::io, "cannot write " + file.string() + ": " + std::strerror(errno)};
  };
  const auto beside = file.string() + ".new";
  ::unlink(beside.c_str());
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed();
  const bool written =
      ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  if (::close(fd) != 0 || !written || ::rename(beside.c_str(), file.c_str()) != 0) return failed();
  return {};
}

result<void> make_folder(const fs::path& folder) {
  std::error_code failed;
  if (fs::is_directory(folder, failed)) return {};
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), failed);
  if (::mkdir(folder.c_str(), 0700) == 0) return {};
  return error{errc::io, "cannot make the folder " + folder.string() + ": " + std::strerror(errno)};
}

bool add_extension(X509* to, X509* issuer, int kind, const std::string& text) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
  const extension_ptr made(X509V3_EXT_conf_nid(nullptr, &context, kind, text.c_str()));
  return made && X509_add_ext(to, made.get(), -1) == 1;
}

bool set_serial(X509* c) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
  bytes[0] &= 0x7f;  // positive
  using number_ptr = std::unique_ptr<BIGNUM, freed_by<BN_free>>;
  const number_ptr number(BN_bin2bn(bytes, sizeof bytes, nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(c)) != nullptr;
}

// What a CA's and a holder's certificate share; neither signed nor with extensions yet.
x509_ptr make_certificate(EVP_PKEY* key, const std::string& common_name, seconds begins, seconds lasts) {
  x509_ptr c(X509_new());
  auto* name = X509_get_subject_name(c.get());
  const auto add = [&](const char* field, const std::string& text) {
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()), -1, 0) == 1;
  };
  const bool made = X509_set_version(c.get(), 2) == 1 && set_serial(c.get()) && add("O", "Perdura") &&
                    add("CN", common_name) && X509_set_pubkey(c.get(), key) == 1 &&
                    X509_gmtime_adj(X509_getm_notBefore(c.get()), begins.count()) != nullptr &&
                    X509_gmtime_adj(X509_getm_notAfter(c.get()), (begins + lasts).count()) != nullptr;
  return made ? std::move(c) : nullptr;
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, host.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Wildcards and our own names would let one role pass for another.
result<void> check_host_name(const std::string& host) {
  const auto is_fine = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.'; };
  if (is_address(host)) return {};
  if (!host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), is_fine) &&
      !host.ends_with("perdura.internal"))
    return {};
  return error{errc::invalid_argument, "\"" + host + "\" is no host: expected a DNS name or an IP address"};
}

std::string alternative_names(const issue_options& o) {
  std::string text = "URI:" + uri_of(o.who) + ",DNS:" + dns_name_of(o.who.as);
  for (const auto& host : o.hosts) text += (is_address(host) ? ",IP:" : ",DNS:") + host;
  return text;
}

result<void> write_both(const issued& files, X509* certificate, EVP_PKEY* key) {
  // The key first: a certificate without one is refused, a key without a certificate is missing one.
  if (auto r = write(files.key, pem_of(key)); !r) return r;
  return write(files.certificate, pem_of(certificate));
}

// The CA's certificate beside what it issues.
result<void> put_ca(const fs::path& out, const std::string& ca, bool force) {
  std::error_code failed;
  if (!fs::exists(out / "ca.pem", failed)) return write(out / "ca.pem", ca);
  auto there = read(out / "ca.pem");
  if (!there) return there.failure();
  if (*there == ca) return {};
  if (force) return write(out / "ca.pem", ca);
  return error{errc::already_exists,
               (out / "ca.pem").string() + " is another cluster's CA; --force replaces it"};
}

std::int64_t unix_ms(const ASN1_TIME* t) {
  std::tm parts{};
  return ASN1_TIME_to_tm(t, &parts) == 1 ? std::int64_t{::timegm(&parts)} * 1000 : 0;
}

certificate_info describe(const fs::path& file) {
  certificate_info info;
  info.file = file;
  const auto text = read(file);
  const auto c = text ? read_certificate(*text) : nullptr;
  if (!c) {
    info.flaw = "no PEM certificate";
    return info;
  }
  info.begins_unix_ms = unix_ms(X509_get0_notBefore(c.get()));
  info.ends_unix_ms = unix_ms(X509_get0_notAfter(c.get()));
  info.hosts = hosts_of(c.get());
  if (X509_check_ca(c.get()) != 0) {
    info.who = "CA";
    if (X509_cmp_current_time(X509_get0_notAfter(c.get())) < 0) info.flaw = "it has expired";
    return info;
  }
  const auto who = subject_of(c.get());
  if (!who) {
    info.flaw = who.failure().message;
    return info;
  }
  info.who = to_string(*who);
  if (auto loaded = load_identity(file.parent_path(), who->as); !loaded) info.flaw = loaded.failure().message;
  return info;
}

}  // namespace

result<issued> make_authority(const fs::path& folder, bool force) {
  const issued files{folder / "ca.pem", folder / "ca.key"};
  for (const auto& file : {files.certificate, files.key})
    if (auto absent = check_absent(file, force); !absent) return absent.failure();
  if (auto made = make_folder(folder); !made) return made.failure();
  const key_ptr key(EVP_EC_gen("P-256"));
  if (!key) return openssl_error("make the CA's key");
  const auto c = make_certificate(key.get(), "Perdura cluster CA", -clocks_differ, authority_lasts);
  const bool made = c && X509_set_issuer_name(c.get(), X509_get_subject_name(c.get())) == 1 &&
                    add_extension(c.get(), c.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    add_extension(c.get(), c.get(), NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    add_extension(c.get(), c.get(), NID_subject_key_identifier, "hash") &&
                    X509_sign(c.get(), key.get(), EVP_sha256()) != 0;
  if (!made) return openssl_error("make the CA's certificate");
  if (auto written = write_both(files, c.get(), key.get()); !written) return written.failure();
  return files;
}

result<issued> issue(const fs::path& folder, const issue_options& o, const fs::path& out, bool force) {
  if (auto fine = check_name(o.who.name); !fine) return fine.failure();
  for (const auto& host : o.hosts)
    if (auto fine = check_host_name(host); !fine) return fine.failure();
  const auto ca_text = read(folder / "ca.pem");
  if (!ca_text) return ca_text.failure();
  const auto key_text = read(folder / "ca.key");
  if (!key_text) return key_text.failure();
  const auto ca = read_certificate(*ca_text);
  const auto ca_key = read_key(*key_text);
  if (!ca || !ca_key || X509_check_private_key(ca.get(), ca_key.get()) != 1)
    return error{errc::corrupt, (folder / "ca.pem").string() + " and ca.key beside it are no pair"};
  const auto name = std::string(to_string(o.who.as));
  const issued files{out / (name + ".pem"), out / (name + ".key")};
  for (const auto& file : {files.certificate, files.key})
    if (auto absent = check_absent(file, force); !absent) return absent.failure();
  if (auto made = make_folder(out); !made) return made.failure();

  const key_ptr key(EVP_EC_gen("P-256"));
  if (!key) return openssl_error("make a key");
  const auto c = make_certificate(key.get(), uri_of(o.who), o.begins, o.lasts);
  const bool made = c && X509_set_issuer_name(c.get(), X509_get_subject_name(ca.get())) == 1 &&
                    add_extension(c.get(), ca.get(), NID_basic_constraints, "critical,CA:FALSE") &&
                    add_extension(c.get(), ca.get(), NID_key_usage, "critical,digitalSignature") &&
                    add_extension(c.get(), ca.get(), NID_ext_key_usage, "serverAuth,clientAuth") &&
                    add_extension(c.get(), ca.get(), NID_subject_key_identifier, "hash") &&
                    add_extension(c.get(), ca.get(), NID_authority_key_identifier, "keyid") &&
                    add_extension(c.get(), ca.get(), NID_subject_alt_name, alternative_names(o)) &&
                    X509_sign(c.get(), ca_key.get(), EVP_sha256()) != 0;
  if (!made) return openssl_error("make the certificate of " + to_string(o.who));
  if (auto put = put_ca(out, *ca_text, force); !put) return put.failure();
  if (auto written = write_both(files, c.get(), key.get()); !written) return written.failure();
  return files;
}

result<std::vector<certificate_info>> list_certificates(const fs::path& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed))
    return error{errc::not_found, folder.string() + " is no folder; `perdura pki init` makes one"};
  std::vector<fs::path> files;
  const auto collect = [&](const fs::path& in) {
    for (const auto& entry : fs::directory_iterator(in, failed))
      if (entry.path().extension() == ".pem") files.push_back(entry.path());
  };
  collect(folder);
  for (const auto& entry : fs::directory_iterator(folder, failed))
    if (entry.is_directory(failed)) collect(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<certificate_info> all;
  for (const auto& file : files) all.push_back(describe(file));
  return all;
}

}  // namespace perdura::tls
