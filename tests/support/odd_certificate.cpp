// See the header. The certificate lives on the library's own terms: nothing of syncd is asked.
#include "tests/support/odd_certificate.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

#include "tests/support/tls_files.h"

namespace syncd::test {
namespace {

template <class T, void (*Free)(T*)>
struct Freed {
  void operator()(T* object) const { Free(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES, GENERAL_NAMES_free>>;

void check(bool good) {
  if (!good) throw std::runtime_error("OpenSSL made no certificate");
}

void add_name(GENERAL_NAMES* names, const std::string& text) {
  ASN1_IA5STRING* value = ASN1_IA5STRING_new();
  GENERAL_NAME* name = GENERAL_NAME_new();
  check(value != nullptr && name != nullptr &&
        ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) == 1);
  GENERAL_NAME_set0_value(name, GEN_DNS, value);
  check(sk_GENERAL_NAME_push(names, name) > 0);
}

template <class Write>
std::string pem(Write write) {
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(BIO_new(BIO_s_mem()), BIO_free);
  check(bio != nullptr && write(bio.get()) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

}  // namespace

void write_odd_certificate(const std::string& certificate_path, const std::string& key_path,
                           const std::vector<std::string>& dns_names) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  const Names names(GENERAL_NAMES_new());
  check(key && certificate && names);
  for (const std::string& name : dns_names) add_name(names.get(), name);
  X509* made = certificate.get();
  const unsigned char common_name[] = "odd";
  X509_NAME* subject = X509_get_subject_name(made);
  check(X509_set_version(made, X509_VERSION_3) == 1 &&
        ASN1_INTEGER_set(X509_get_serialNumber(made), 1) == 1 &&
        X509_gmtime_adj(X509_getm_notBefore(made), -300) != nullptr &&
        X509_gmtime_adj(X509_getm_notAfter(made), kDayS) != nullptr &&
        X509_set_pubkey(made, key.get()) == 1 &&
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, common_name, -1, -1, 0) == 1 &&
        X509_set_issuer_name(made, subject) == 1 &&
        X509_add1_ext_i2d(made, NID_subject_alt_name, names.get(), 0, 0) == 1 &&
        X509_sign(made, key.get(), EVP_sha256()) != 0);
  write_private_file(certificate_path,
                     pem([&](BIO* bio) { return PEM_write_bio_X509(bio, made); }));
  write_private_file(key_path, pem([&](BIO* bio) {
                       return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr,
                                                       nullptr);
                     }));
}

}  // namespace syncd::test
