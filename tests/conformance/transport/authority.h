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
  // When a certificate is valid, in days from now.
  struct Days {
    int from = -2;
    int to = 2;
  };

  // The names of files in directory begin with name.
  Authority(std::string directory, std::string name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  // alt_names as in "IP:127.0.0.1,DNS:agent".
  transport::tls::Files issue(const std::string& name, const std::string& alt_names,
                              Days days) const;
  transport::tls::Files issue(const std::string& name, const std::string& alt_names) const {
    return issue(name, alt_names, Days());
  }
  const std::string& file() const { return file_; }

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
    void operator()(x509_st* certificate) const;
  };
  using Key = std::unique_ptr<evp_pkey_st, Free>;
  using Certificate = std::unique_ptr<x509_st, Free>;
  static Key make_key();
  static Certificate make_certificate(const std::string& name, evp_pkey_st& key, Days days);
  std::string write(const std::string& name, x509_st* certificate, evp_pkey_st* key) const;

  const std::string path_;  // prefix of the file names
  Key key_;
  Certificate own_;
  std::string file_;
};

// The certificates that both ends of a lane on 127.0.0.1 may show.
const transport::tls::Identity& loopback_identity();

}  // namespace mc::conformance
