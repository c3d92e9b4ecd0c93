// SPDX-License-Identifier: Apache-2.0
#include "conformance/transport/authority.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace mc::conformance {

namespace {

constexpr long kDaySeconds = 24 * 60 * 60;

void extend(X509* certificate, X509* issuer, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  ::X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = ::X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
  if (extension == nullptr) throw std::runtime_error("not an extension: " + value);
  ::X509_add_ext(certificate, extension, -1);
  ::X509_EXTENSION_free(extension);
}

}  // namespace

void Authority::Free::operator()(evp_pkey_st* key) const { ::EVP_PKEY_free(key); }
void Authority::Free::operator()(x509_st* certificate) const { ::X509_free(certificate); }

Authority::Key Authority::make_key() { return Key(EVP_EC_gen("P-256")); }

Authority::Certificate Authority::make_certificate(const std::string& name, evp_pkey_st& key,
                                                   Days days) {
  static long serial = 0;
  Certificate certificate(::X509_new());
  ::X509_set_version(certificate.get(), X509_VERSION_3);
  ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate.get()), ++serial);
  ::X509_gmtime_adj(X509_getm_notBefore(certificate.get()), days.from * kDaySeconds);
  ::X509_gmtime_adj(X509_getm_notAfter(certificate.get()), days.to * kDaySeconds);
  ::X509_set_pubkey(certificate.get(), &key);
  ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

std::string Authority::write(const std::string& name, x509_st* certificate,
                             evp_pkey_st* key) const {
  const std::string path = path_ + name;
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (certificate != nullptr) ::PEM_write_X509(file, certificate);
  if (key != nullptr) ::PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  return path;
}

Authority::Authority(std::string directory, std::string name)
    : path_(std::move(directory) + "/" + name + "-"),
      key_(make_key()),
      own_(make_certificate(name, *key_, Days())) {
  ::X509_set_issuer_name(own_.get(), ::X509_get_subject_name(own_.get()));
  extend(own_.get(), own_.get(), NID_basic_constraints, "critical,CA:TRUE");
  ::X509_sign(own_.get(), key_.get(), ::EVP_sha256());
  file_ = write("ca.pem", own_.get(), nullptr);
}

Authority::~Authority() = default;

transport::tls::Files Authority::issue(const std::string& name, const std::string& alt_names,
                                       Days days) const {
  const Key key = make_key();
  const Certificate certificate = make_certificate(name, *key, days);
  ::X509_set_issuer_name(certificate.get(), ::X509_get_subject_name(own_.get()));
  extend(certificate.get(), own_.get(), NID_subject_alt_name, alt_names);
  ::X509_sign(certificate.get(), key_.get(), ::EVP_sha256());
  transport::tls::Files files;
  files.cert = write(name + "-cert.pem", certificate.get(), nullptr);
  files.key = write(name + "-key.pem", nullptr, key.get());
  files.ca = file_;
  return files;
}

const transport::tls::Identity& loopback_identity() {
  static const auto identity = [] {
    std::string directory = std::filesystem::temp_directory_path().string() + "/mc-tls-XXXXXX";
    if (::mkdtemp(directory.data()) == nullptr) throw std::runtime_error("no " + directory);
    auto opened = transport::tls::Identity::open(
        Authority(directory, "loopback").issue("node", "IP:127.0.0.1"));
    std::filesystem::remove_all(directory);
    return std::move(opened.value());
  }();
  return *identity;
}

}  // namespace mc::conformance
