// SPDX-License-Identifier: Apache-2.0
//
// A certificate authority of a test: PEM files of the authority's certificate and of
//   the issued certificates, valid or not as the test wants.
// Threads: the test's.
// Owns: the keys. The files lie in the given directory.
#pragma once

#include <memory>
#include <string>

#include "transport/tls/identity.h"

struct evp_pkey_st;
struct x509_st;

namespace mc::conformance {

class Authority {
 public:
  // The names of files in directory begin with name.
  Authority(std::string directory, std::string name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  // alt_names as in "IP:127.0.0.1,DNS:agent". The certificate is valid from yesterday for the given
  // days.
  transport::tls::Files issue(const std::string& name, const std::string& alt_names,
                              int days = 2) const;
  const std::string& file() const { return file_; }

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
    void operator()(x509_st* certificate) const;
  };
  using Key = std::unique_ptr<evp_pkey_st, Free>;
  using Certificate = std::unique_ptr<x509_st, Free>;
  static Key make_key();
  static Certificate make_certificate(const std::string& name, evp_pkey_st& key, int days);
  std::string write(const std::string& name, x509_st* certificate, evp_pkey_st* key) const;

  const std::string path_;  // prefix of the file names
  Key key_;
  Certificate own_;
  std::string file_;
};

// The certificates that both ends of a lane on 127.0.0.1 may show.
const transport::tls::Identity& loopback_identity();

}  // namespace mc::conformance
