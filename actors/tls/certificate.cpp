#include "actors/tls/certificate.hpp"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <ctime>
#include <optional>

namespace perdura::tls {
namespace {

using names_ptr = std::unique_ptr<GENERAL_NAMES, freed_by<GENERAL_NAMES_free>>;

std::string text_of(const ASN1_STRING* s) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(s)),
          static_cast<std::size_t>(ASN1_STRING_length(s))};
}

names_ptr names_of(X509* certificate) {
  return names_ptr(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
}

std::string address_text(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

bio_ptr memory_of(const std::string& text) {
  return bio_ptr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// An encrypted key must not ask on the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

}  // namespace

std::string last_openssl_error() {
  char text[256] = "unknown";
  if (const auto code = ERR_peek_last_error(); code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

x509_ptr read_certificate(const std::string& pem) {
  x509_ptr read(PEM_read_bio_X509(memory_of(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return read;
}

key_ptr read_key(const std::string& pem) {
  key_ptr read(PEM_read_bio_PrivateKey(memory_of(pem).get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return read;
}

std::string time_text(const ASN1_TIME* t) {
  std::tm parts{};
  char text[32] = "an unreadable time";
  if (ASN1_TIME_to_tm(t, &parts) == 1) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

result<subject> subject_of(X509* certificate) {
  const std::string scheme = "perdura://";
  std::optional<subject> found;
  const auto names = names_of(certificate);
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const auto* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const auto uri = text_of(name->d.uniformResourceIdentifier);
    const auto slash = uri.find('/', scheme.size());
    if (!uri.starts_with(scheme) || slash == std::string::npos) continue;
    const auto as = parse_role(uri.substr(scheme.size(), slash - scheme.size()));
    const auto who = uri.substr(slash + 1);
    if (!as || !check_name(who)) return error{errc::refused, "its certificate's role is unknown: " + uri};
    if (found) return error{errc::refused, "its certificate carries more than one role"};
    found = subject{*as, who};
  }
  if (!found) return error{errc::refused, "its certificate carries no role of a Perdura cluster"};
  return *found;
}

std::vector<std::string> hosts_of(X509* certificate) {
  std::vector<std::string> hosts;
  const auto names = names_of(certificate);
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const auto* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_IPADD) hosts.push_back(address_text(text_of(name->d.iPAddress)));
    if (name->type == GEN_DNS && !text_of(name->d.dNSName).ends_with(".perdura.internal"))
      hosts.push_back(text_of(name->d.dNSName));
  }
  return hosts;
}

}  // namespace perdura::tls
