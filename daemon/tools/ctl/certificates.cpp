// See certificates.h.
#include "daemon/tools/ctl/certificates.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace syncd::ctl {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

void check(bool good, const char* what) {
  if (good) return;
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  throw std::runtime_error(std::string("cannot ") + what + ": " +
                           (reason != nullptr ? reason : "no reason given"));
}

Key new_key() {
  Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  check(key != nullptr, "make a key");
  return key;
}

std::string take(const Bio& bio) {
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<std::size_t>(std::max(size, 0L))};
}

std::string pem_of(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()), BIO_free);
  check(bio != nullptr && PEM_write_bio_X509(bio.get(), certificate) == 1, "write a certificate");
  return take(bio);
}

std::string pem_of(EVP_PKEY* key) {
  // Memory that is wiped when it is given back.
  const Bio bio(BIO_new(BIO_s_secmem()), BIO_free);
  check(bio != nullptr && PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0,
                                                        nullptr, nullptr) == 1,
        "write a key");
  return take(bio);
}

Certificate read_certificate(const std::string& pem, const char* whose = "the authority's") {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
  check(certificate != nullptr, fmt::format("read {} certificate", whose).c_str());
  return certificate;
}

Key read_key(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  check(key != nullptr, "read the authority's key");
  return key;
}

void set_random_serial(X509* certificate) {
  const std::unique_ptr<BIGNUM, decltype(&BN_free)> number(BN_new(), BN_free);
  check(number != nullptr && BN_rand(number.get(), 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
            BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr,
        "make a serial number");
}

void set_name(X509_NAME* name, const std::string& common_name) {
  check(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(common_name.data()),
                                   static_cast<int>(common_name.size()), -1, 0) == 1,
        "set a certificate's name");
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  using Extension = std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)>;
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()),
                            X509_EXTENSION_free);
  check(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1,
        "add an extension to a certificate");
}

// "DNS:node-a", "IP:10.0.0.1", "URI:spiffe://x". What would end the entry and begin another one is
// refused.
std::string alternative_name(const std::string& name) {
  const auto allowed = [](char c) {
    return c > ' ' && c < 0x7f && c != ',' && c != ';' && c != '\\' && c != '"' && c != '@';
  };
  if (name.empty() || name.size() > 255 || !std::all_of(name.begin(), name.end(), allowed)) {
    throw std::invalid_argument("'" + name +
                                "' cannot be a certificate's name; allowed: a DNS name, a numeric "
                                "address, or a URI such as spiffe://cluster/worker");
  }
  unsigned char bytes[sizeof(in6_addr)];
  if (inet_pton(AF_INET, name.c_str(), bytes) == 1 ||
      inet_pton(AF_INET6, name.c_str(), bytes) == 1) {
    return "IP:" + name;
  }
  return (name.find("://") != std::string::npos ? "URI:" : "DNS:") + name;
}

void set_validity(X509* certificate, std::int64_t from_s, std::int64_t until_s) {
  check(X509_gmtime_adj(X509_getm_notBefore(certificate), from_s) != nullptr &&
            X509_gmtime_adj(X509_getm_notAfter(certificate), until_s) != nullptr,
        "fill a certificate in");
}

// All but the signature. A null issuer: it is its own.
Certificate begin(EVP_PKEY* key, const std::string& common_name, X509* issuer, std::int64_t from_s,
                  std::int64_t until_s) {
  Certificate certificate(X509_new(), X509_free);
  check(certificate != nullptr && X509_set_version(certificate.get(), X509_VERSION_3) == 1,
        "make a certificate");
  set_random_serial(certificate.get());
  set_validity(certificate.get(), from_s, until_s);
  check(X509_set_pubkey(certificate.get(), key) == 1, "fill a certificate in");
  set_name(X509_get_subject_name(certificate.get()), common_name);
  check(X509_set_issuer_name(
            certificate.get(),
            X509_get_subject_name(issuer != nullptr ? issuer : certificate.get())) == 1,
        "fill a certificate in");
  return certificate;
}

void sign(X509* certificate, EVP_PKEY* key) {
  check(X509_sign(certificate, key, EVP_sha256()) != 0, "sign a certificate");
}

}  // namespace

CertificateAndKey make_authority(const std::string& common_name, std::int64_t valid_s) {
  const Key key = new_key();
  const Certificate certificate = begin(key.get(), common_name, nullptr, -300, valid_s);
  X509* self = certificate.get();
  add_extension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(self, self, NID_subject_key_identifier, "hash");
  sign(self, key.get());
  return {pem_of(self), pem_of(key.get())};
}

CertificateAndKey make_certificate(const CertificateAndKey& authority,
                                   const CertificateOptions& options) {
  const Certificate issuer = read_certificate(authority.certificate);
  const Key issuer_key = read_key(authority.key);
  const Key key = new_key();
  const Certificate certificate = begin(key.get(), options.common_name, issuer.get(),
                                        options.valid_from_s, options.valid_until_s);
  add_extension(certificate.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate.get(), issuer.get(), NID_key_usage, "critical,digitalSignature");
  std::string usage;
  if (options.for_server) usage = "serverAuth";
  if (options.for_client) usage += usage.empty() ? "clientAuth" : ",clientAuth";
  if (!usage.empty()) add_extension(certificate.get(), issuer.get(), NID_ext_key_usage, usage);
  std::string names;
  for (const std::string& name : options.names) {
    names += (names.empty() ? "" : ",") + alternative_name(name);
  }
  if (!names.empty()) {
    add_extension(certificate.get(), issuer.get(), NID_subject_alt_name, names);
  }
  add_extension(certificate.get(), issuer.get(), NID_authority_key_identifier, "keyid");
  sign(certificate.get(), issuer_key.get());
  return {pem_of(certificate.get()), pem_of(key.get())};
}

std::string renew_certificate(const CertificateAndKey& authority, const std::string& certificate,
                              std::int64_t valid_s) {
  const Key issuer_key = read_key(authority.key);
  const Certificate renewed = read_certificate(certificate, "the old");
  check(X509_verify(renewed.get(), issuer_key.get()) == 1,
        "renew what this authority has not signed");
  set_random_serial(renewed.get());
  set_validity(renewed.get(), CertificateOptions().valid_from_s, valid_s);
  sign(renewed.get(), issuer_key.get());
  return pem_of(renewed.get());
}

}  // namespace syncd::ctl
