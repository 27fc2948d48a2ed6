#include "actors/tls/proof.hpp"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "actors/tls/openssl.hpp"

namespace perdura::tls {
namespace {

using digest_ptr = std::unique_ptr<EVP_MD_CTX, freed_by<EVP_MD_CTX_free>>;

const unsigned char* bytes_of(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

bool is_signed(const std::string& text, const std::string& signature, EVP_PKEY* key) {
  const digest_ptr context(EVP_MD_CTX_new());
  const bool fits = EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
                    EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(text),
                                     text.size()) == 1;
  ERR_clear_error();
  return fits;
}

// Parts with their lengths, so that no two lists of parts give the same text.
std::string joined(std::initializer_list<std::string> parts) {
  std::string text;
  for (const auto& part : parts) text += std::to_string(part.size()) + ":" + part;
  return text;
}

}  // namespace

std::string fresh_nonce() {
  std::string nonce(nonce_bytes, '\0');
  PERDURA_CHECK(
      RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) == 1,
      "OpenSSL has randomness");
  return nonce;
}

std::string hello_text(const incarnation& who, const std::string& nonce, const std::string& hello) {
  return joined({"perdura hello 1", to_string(who), nonce, hello});
}

std::string challenge_text(const challenge_request& asked, const std::string& nonce) {
  return joined({"perdura challenge 1", to_string(asked.who), asked.nonce, nonce});
}

role_proof prove(const identity& self, const std::string& text) {
  const auto key = read_key(self.key);
  const digest_ptr context(EVP_MD_CTX_new());
  std::size_t size = 0;
  PERDURA_CHECK(key && EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
                    EVP_DigestSign(context.get(), nullptr, &size, bytes_of(text), text.size()) == 1,
                "a key that was loaded signs");
  std::string signature(size, '\0');
  PERDURA_CHECK(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                               bytes_of(text), text.size()) == 1,
                "a key that was loaded signs");
  signature.resize(size);
  return {self.certificate, std::move(signature)};
}

result<subject> check(const role_proof& proof, role expected, const std::string& text, const identity& self) {
  if (proof.certificate.empty())
    return error{errc::refused,
                 "it shows no certificate, and this cluster has its own; set tls_folder there"};
  auto who = verify(proof.certificate, self.ca);
  if (!who) return who;
  if (who->as != expected)
    return error{errc::refused,
                 "it shows the certificate of " + to_string(*who) + ", not of a " + to_string(expected)};
  const auto certificate = read_certificate(proof.certificate);
  if (!is_signed(text, proof.signature, X509_get0_pubkey(certificate.get())))
    return error{errc::refused, "it does not hold the key of the certificate of " + to_string(*who) +
                                    ", or signed something else"};
  return who;
}

}  // namespace perdura::tls
