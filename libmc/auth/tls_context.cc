// SPDX-License-Identifier: Apache-2.0
#include "libmc/auth/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>

#include "libmc/base/fd.h"

namespace mc::auth {

namespace {

tl::unexpected<Status> cannot_use(const TlsSettings::File& file) {
  const char* const reason = ::ERR_reason_error_string(::ERR_peek_last_error());
  ::ERR_clear_error();
  std::string why = reason != nullptr ? reason : "OpenSSL gives no reason";
  if (::access(file.path.c_str(), R_OK) != 0) why = errno_text("open", errno);
  return fail(MC_INVALID_ARGUMENT, "TLS: " + file.name + " " + file.path + " cannot be used (" +
                                       why + "); it must be a readable PEM file");
}

}  // namespace

void TlsContextFree::operator()(ssl_ctx_st* context) const { ::SSL_CTX_free(context); }

Result<std::shared_ptr<TlsContexts>> TlsContexts::open(TlsSettings settings, TlsWarning warn) {
  std::shared_ptr<TlsContexts> contexts(new TlsContexts(std::move(settings), std::move(warn)));
  const MutexLock lock(contexts->mutex_);
  contexts->used_ = contexts->stamps();
  auto context = contexts->read();
  if (!context) return fail(context.error());
  contexts->context_ = std::move(*context);
  return contexts;
}

TlsContextPointer TlsContexts::current() {
  const MutexLock lock(mutex_);
  // Taken before the files are read: a file that changes meanwhile is read again next time.
  const Stamps now = stamps();
  if (now != used_) {
    if (auto context = read()) {
      context_ = std::move(*context);
      used_ = now;
    } else if (now != refused_) {
      refused_ = now;
      if (warn_) warn_(context.error());
    }
  }
  ::SSL_CTX_up_ref(context_.get());
  return TlsContextPointer(context_.get());
}

TlsContexts::Stamps TlsContexts::stamps() const {
  Stamps stamps;
  std::size_t at = 0;
  for (const auto* file : {&settings_.cert, &settings_.key, &settings_.ca}) {
    struct stat about {};
    if (!file->path.empty() && ::stat(file->path.c_str(), &about) == 0) {
      stamps[at] = {about.st_dev, about.st_ino, about.st_size, about.st_mtim.tv_sec,
                    about.st_mtim.tv_nsec};
    }
    ++at;
  }
  return stamps;
}

Result<TlsContextPointer> TlsContexts::read() const {
  ::ERR_clear_error();
  TlsContextPointer made(::SSL_CTX_new(::TLS_method()));
  SSL_CTX* const context = made.get();
  if (context == nullptr) return fail(MC_NO_MEMORY, "OpenSSL has no memory for a context");
  ::SSL_CTX_set_min_proto_version(context,
                                  settings_.allow_tls_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION);
  if (!settings_.cert.path.empty() &&
      ::SSL_CTX_use_certificate_chain_file(context, settings_.cert.path.c_str()) != 1) {
    return cannot_use(settings_.cert);
  }
  if (!settings_.key.path.empty() &&
      (::SSL_CTX_use_PrivateKey_file(context, settings_.key.path.c_str(), SSL_FILETYPE_PEM) != 1 ||
       ::SSL_CTX_check_private_key(context) != 1)) {
    return cannot_use(settings_.key);
  }
  if (!settings_.ca.path.empty()) {
    if (::SSL_CTX_load_verify_locations(context, settings_.ca.path.c_str(), nullptr) != 1) {
      return cannot_use(settings_.ca);
    }
  } else if (settings_.system_ca) {
    ::SSL_CTX_set_default_verify_paths(context);
  }
  if (settings_.verify_peer) {
    ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  if (settings_.finish) {
    if (Status status = settings_.finish(context); !status.ok()) return fail(status);
  }
  return made;
}

std::string certificate_trouble(const ssl_st* session) {
  const long verdict = ::SSL_get_verify_result(session);
  if (verdict == X509_V_OK) return {};
  std::string text = ::X509_verify_cert_error_string(verdict);
  if (verdict == X509_V_ERR_CERT_NOT_YET_VALID || verdict == X509_V_ERR_CERT_HAS_EXPIRED) {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    std::array<char, 32> clock{};
    std::strftime(clock.data(), clock.size(), "%Y-%m-%d %H:%M", &utc);
    text += "; this host's clock says " + std::string(clock.data()) +
            " UTC: set the clock if that is wrong, else renew the certificate";
  }
  return text;
}

}  // namespace mc::auth
