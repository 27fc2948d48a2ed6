// OpenSSL's objects with owners.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "actors/base/result.hpp"

namespace perdura::tls {

template <auto Free>
struct freed_by {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using bio_ptr = std::unique_ptr<BIO, freed_by<BIO_free_all>>;
using x509_ptr = std::unique_ptr<X509, freed_by<X509_free>>;
using key_ptr = std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>>;

// Why the last call of this thread failed, and forgets it.
std::string last_openssl_error();

// Null when the text is none.
x509_ptr read_certificate(const std::string& pem);
key_ptr read_key(const std::string& pem);

// "2027-01-31 12:00 UTC"
std::string time_text(const ASN1_TIME* t);

}  // namespace perdura::tls
