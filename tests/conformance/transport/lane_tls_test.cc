// SPDX-License-Identifier: Apache-2.0
//
// Lanes with TLS: the accepted and refused certificates, the answers to each side, foreign bytes in
// a session, and the proof of the cluster's key inside the session.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "conformance/store/store_servers.h"
#include "conformance/transport/authority.h"
#include "conformance/transport/tcp_node.h"
#include "conformance/transport/transport_world.h"
#include "libmc/base/clock.h"
#include "patience.h"
#include "transport/keyed/keyed_handshake.h"
#include "transport/tls/session.h"

namespace mc::transport::testing {
namespace {

using conformance::Authority;
using conformance::loopback_identity;
using conformance::TempDirectory;
using tcp::TlsSession;

std::unique_ptr<tls::Identity> identity_of(const tls::Files& files) {
  auto opened = tls::Identity::open(files);
  EXPECT_TRUE(opened) << opened.error().to_string();
  return std::move(*opened);
}

// Two hosts whose lanes come up, or do not.
class LaneTls : public ::testing::Test {
 protected:
  static tcp::TcpOptions options(NodeId node) {
    tcp::TcpOptions result;
    result.node = node;
    result.incarnation = 1;
    return result;
  }
  // null: plain.
  void start(const tls::Identity* dialing, const tls::Identity* listening) {
    a_ = std::make_unique<TcpNode>(book_, options(kNodeA), 0, dialing);
    b_ = std::make_unique<TcpNode>(book_, options(kNodeB), 0, listening);
    static_cast<void>(a_->transport().connect({kNodeB, 1}).value());
  }
  bool wait_for(const std::function<bool()>& holds) {
    const std::uint64_t until_ns = now_ns() + kWatchdogNs;
    std::vector<Event> events;
    while (!holds()) {
      const std::uint64_t now = now_ns();
      if (now > until_ns) return false;
      for (TcpNode* const node : {a_.get(), b_.get()}) {
        node->step(now);
        node->transport().poll(now, events);
      }
    }
    return true;
  }
  // Both sides refuse, with these words as the cause.
  void expect_refusal(const std::string& dialer_says, const std::string& listener_says) {
    ASSERT_TRUE(wait_for([&] { return a_->refusals() > 0 && b_->refusals() > 0; }));
    EXPECT_EQ(a_->links(), 0u);
    EXPECT_NE(a_->refusal().text().find(dialer_says), std::string::npos)
        << a_->refusal().to_string();
    EXPECT_NE(b_->refusal().text().find(listener_says), std::string::npos)
        << b_->refusal().to_string();
  }

  TempDirectory directory_;
  Authority authority_{directory_.path(), "ours"};
  PortBook book_;
  std::unique_ptr<TcpNode> a_;
  std::unique_ptr<TcpNode> b_;
};

TEST_F(LaneTls, CertificatesOfOneAuthorityLetEachOtherIn) {
  const auto a = identity_of(authority_.issue("a", "IP:127.0.0.1"));
  const auto b = identity_of(authority_.issue("b", "IP:127.0.0.1"));
  start(a.get(), b.get());
  EXPECT_TRUE(wait_for([&] { return a_->links() == 2; }));
}

TEST_F(LaneTls, TheDialerRefusesACertificateOfAnotherAuthority) {
  const Authority stranger(directory_.path(), "strange");
  const auto a = identity_of(authority_.issue("a", "IP:127.0.0.1"));
  const auto b = identity_of(stranger.issue("b", "IP:127.0.0.1"));
  start(a.get(), b.get());
  expect_refusal("is it signed by peer_tls_ca", "unknown ca");
}

TEST_F(LaneTls, TheListenerRefusesACertificateOfAnotherAuthority) {
  // The dialer accepts the listener, whose authority the dialer trusts beside its own.
  const Authority stranger(directory_.path(), "strange");
  tls::Files files = stranger.issue("a", "IP:127.0.0.1");
  files.ca = authority_.file();
  const auto a = identity_of(files);
  const auto b = identity_of(authority_.issue("b", "IP:127.0.0.1"));
  start(a.get(), b.get());
  expect_refusal("hung up", "is it signed by peer_tls_ca");
}

TEST_F(LaneTls, AnExpiredCertificateIsRefused) {
  const auto a = identity_of(authority_.issue("a", "IP:127.0.0.1"));
  const auto b = identity_of(authority_.issue("b", "IP:127.0.0.1", {.to = -1}));
  start(a.get(), b.get());
  expect_refusal("certificate has expired; this host's clock says", "expired");
}

TEST_F(LaneTls, ACertificateOfTomorrowIsRefusedWithAWordAboutTheClock) {
  const auto a = identity_of(authority_.issue("a", "IP:127.0.0.1"));
  const auto b = identity_of(authority_.issue("b", "IP:127.0.0.1", {.from = 1}));
  start(a.get(), b.get());
  expect_refusal("not yet valid; this host's clock says", "certificate");
}

void move_files(const tls::Files& from, const tls::Files& to) {
  std::filesystem::rename(from.cert, to.cert);
  std::filesystem::rename(from.key, to.key);
}

TEST_F(LaneTls, RenewedFilesCountFromTheNextHandshakeOn) {
  const auto a = identity_of(authority_.issue("a", "IP:127.0.0.1"));
  const tls::Files files = authority_.issue("b", "IP:127.0.0.1", {.to = -1});
  const auto b = identity_of(files);
  move_files(authority_.issue("renewed", "IP:127.0.0.1"), files);
  start(a.get(), b.get());
  EXPECT_TRUE(wait_for([&] { return a_->links() == 2; })) << a_->refusal().to_string();
}

TEST_F(LaneTls, RenewedFilesThatCannotBeUsedAreNamedOnceAndThoseBeforeStay) {
  const auto a = identity_of(authority_.issue("a", "IP:127.0.0.1"));
  const tls::Files files = authority_.issue("b", "IP:127.0.0.1");
  std::vector<std::string> warnings;
  const auto b = tls::Identity::open(
      files, [&](const Status& status) { warnings.emplace_back(status.text()); });
  ASSERT_TRUE(b) << b.error().to_string();
  // A key whose certificate has not come yet.
  std::filesystem::rename(authority_.issue("renewed", "IP:127.0.0.1").key, files.key);
  start(a.get(), b->get());
  EXPECT_TRUE(wait_for([&] { return a_->links() == 2; })) << a_->refusal().to_string();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("peer_tls_key " + files.key), std::string::npos) << warnings[0];
}

TEST_F(LaneTls, ACertificateForAnotherAddressIsRefused) {
  const auto a = identity_of(authority_.issue("a", "IP:127.0.0.1"));
  const auto b = identity_of(authority_.issue("b", "IP:10.9.8.7"));
  start(a.get(), b.get());
  expect_refusal("subjectAltName must name the address", "certificate");
}

TEST_F(LaneTls, ANameMayStandInForTheAddress) {
  tls::Files files = authority_.issue("a", "DNS:cache.example");
  files.name = "cache.example";
  const auto a = identity_of(files);
  start(a.get(), a.get());
  EXPECT_TRUE(wait_for([&] { return a_->links() == 2; }));
}

TEST_F(LaneTls, APlainPeerIsRefusedAndToldOfIt) {
  start(nullptr, &loopback_identity());
  expect_refusal("", "does not speak TLS: give it peer_tls_cert");
}

TEST_F(LaneTls, APlainListenerRefusesATlsPeer) {
  start(&loopback_identity(), nullptr);
  expect_refusal("no peer_tls_cert", "");
}

TEST_F(LaneTls, FilesThatCannotBeUsedAreNamed) {
  tls::Files files = authority_.issue("a", "IP:127.0.0.1");
  const auto says = [](const tls::Files& wrong, const std::string& what) {
    const auto opened = tls::Identity::open(wrong);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), MC_INVALID_ARGUMENT);
    EXPECT_NE(opened.error().text().find(what), std::string::npos) << opened.error().to_string();
  };
  tls::Files wrong = files;
  wrong.cert = directory_.file("nothing.pem");
  says(wrong, "peer_tls_cert " + wrong.cert);
  wrong = files;
  wrong.key = authority_.issue("b", "IP:127.0.0.1").key;
  says(wrong, "peer_tls_key " + wrong.key);
  wrong = files;
  wrong.ca = files.key;
  says(wrong, "peer_tls_ca " + wrong.ca);
  wrong = files;
  wrong.ca.clear();
  says(wrong, "all of peer_tls_cert, peer_tls_key and peer_tls_ca");
}

// Two sessions over a connection that the test can meddle with.
class TlsSessions : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    one_.reset(ends[0]);
    other_.reset(ends[1]);
    dialer_ = loopback_identity().dial(one_.get(), "127.0.0.1");
    listener_ = loopback_identity().accept(other_.get());
  }
  void shake() {
    auto dialing = TlsSession::Shaken::kWaits, listening = TlsSession::Shaken::kWaits;
    for (int i = 0; i < 10 && listening != TlsSession::Shaken::kDone; ++i) {
      if (dialing == TlsSession::Shaken::kWaits) dialing = dialer_->shake();
      if (listening == TlsSession::Shaken::kWaits) listening = listener_->shake();
    }
    ASSERT_EQ(dialing, TlsSession::Shaken::kDone) << dialer_->status().to_string();
    ASSERT_EQ(listening, TlsSession::Shaken::kDone) << listener_->status().to_string();
  }
  static ssize_t send(TlsSession& session, std::string_view text) {
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return session.send({&part, 1});
  }
  static std::string receive(TlsSession& session, std::size_t bytes) {
    std::string text(bytes, '\0');
    const iovec part{text.data(), text.size()};
    const ssize_t got = session.receive({&part, 1});
    text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return text;
  }
  // The bytes that the dialing side has sent.
  std::string on_the_wire() const {
    std::string bytes(1 << 20, '\0');
    const ssize_t got = ::recv(other_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return bytes;
  }
  void put_on_the_wire(const std::string& bytes) const {
    ASSERT_EQ(::send(one_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT),
              static_cast<ssize_t>(bytes.size()));
  }

  Fd one_;
  Fd other_;
  std::unique_ptr<TlsSession> dialer_;
  std::unique_ptr<TlsSession> listener_;
};

TEST_F(TlsSessions, BytesArriveAsTheyWereInAnyCut) {
  shake();
  std::string all;
  for (int i = 0; i < 100'000; ++i) all += static_cast<char>(i * 31 % 251);
  // Many small and large parts, in a single call.
  std::vector<iovec> parts;
  for (std::size_t at = 0, size = 1; at < all.size(); at += size, size = size * 3 % 40'009) {
    parts.push_back({all.data() + at, std::min(size, all.size() - at)});
  }
  std::string got;
  for (std::size_t left = all.size(), i = 0; left > 0 && i < 1000; ++i) {
    const ssize_t sent = dialer_->send(parts);
    if (sent > 0) {
      left -= static_cast<std::size_t>(sent);
      for (auto gone = static_cast<std::size_t>(sent); gone > 0;) {
        const std::size_t step = std::min(gone, parts.front().iov_len);
        parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + step;
        parts.front().iov_len -= step;
        gone -= step;
        if (parts.front().iov_len == 0) parts.erase(parts.begin());
      }
    }
    got += receive(*listener_, 7'001);
  }
  while (got.size() < all.size()) {
    ASSERT_TRUE(dialer_->flush());
    const std::string more = receive(*listener_, 9'999);
    ASSERT_FALSE(more.empty() && !dialer_->has_unsent()) << got.size();
    got += more;
  }
  EXPECT_EQ(got, all);
  EXPECT_EQ(dialer_->binding(), listener_->binding());
  EXPECT_EQ(dialer_->binding().size(), 32u);
}

TEST_F(TlsSessions, KeysAreReplacedWhileBytesAreSent) {
  shake();
  // A record each way in turn, until both sides have replaced the keys.
  for (std::uint64_t i = 0; i <= tls::kRecordsPerKey + 1; ++i) {
    ASSERT_EQ(send(*dialer_, "there"), 5);
    ASSERT_EQ(receive(*listener_, 5), "there") << i;
    ASSERT_EQ(send(*listener_, "back"), 4);
    ASSERT_EQ(receive(*dialer_, 4), "back") << i;
  }
}

TEST_F(TlsSessions, NoSentByteIsReadableOnTheWire) {
  shake();
  const std::string secret = "forty-two is what nobody else may read";
  ASSERT_EQ(send(*dialer_, secret), static_cast<ssize_t>(secret.size()));
  const std::string wire = on_the_wire();
  EXPECT_GT(wire.size(), secret.size());
  EXPECT_EQ(wire.find(secret.substr(0, 6)), std::string::npos);
}

TEST_F(TlsSessions, ABitFlippedOnTheWireEndsTheSession) {
  shake();
  ASSERT_GT(send(*dialer_, "whole"), 0);
  std::string wire = on_the_wire();
  wire[wire.size() / 2] = static_cast<char>(wire[wire.size() / 2] ^ 1);
  put_on_the_wire(wire);
  EXPECT_EQ(receive(*listener_, 100), "");
  EXPECT_TRUE(listener_->has_ended());
  EXPECT_FALSE(listener_->status().ok());
}

TEST_F(TlsSessions, AReplayedRecordEndsTheSession) {
  shake();
  ASSERT_GT(send(*dialer_, "once"), 0);
  const std::string wire = on_the_wire();
  put_on_the_wire(wire);
  put_on_the_wire(wire);
  EXPECT_EQ(receive(*listener_, 100), "once");
  EXPECT_TRUE(listener_->has_ended());
}

TEST_F(TlsSessions, ARecordCutShortGivesNothing) {
  shake();
  ASSERT_GT(send(*dialer_, std::string(5'000, 'x')), 0);
  const std::string wire = on_the_wire();
  put_on_the_wire(wire.substr(0, wire.size() - 1));
  EXPECT_EQ(receive(*listener_, 5'000), "");
  EXPECT_FALSE(listener_->has_ended()) << "the rest may come";
  ::shutdown(one_.get(), SHUT_WR);
  EXPECT_EQ(receive(*listener_, 5'000), "");
  EXPECT_TRUE(listener_->has_ended());
}

TEST_F(TlsSessions, GarbageInTheHandshakeIsRefused) {
  for (const char first : {'\x16', '\x17', 'G', '\0'}) {
    SCOPED_TRACE(static_cast<int>(first));
    SetUp();
    std::string garbage(600, first);
    put_on_the_wire(garbage);
    EXPECT_EQ(listener_->shake(), TlsSession::Shaken::kFailed);
    EXPECT_FALSE(listener_->status().ok());
  }
}

TEST_F(TlsSessions, ATruncatedHandshakeFails) {
  EXPECT_EQ(dialer_->shake(), TlsSession::Shaken::kWaits);
  const std::string hello = on_the_wire();
  put_on_the_wire(hello.substr(0, hello.size() / 2));
  EXPECT_EQ(listener_->shake(), TlsSession::Shaken::kWaits);
  ::shutdown(one_.get(), SHUT_WR);
  EXPECT_EQ(listener_->shake(), TlsSession::Shaken::kFailed);
}

TEST_F(TlsSessions, OlderTlsIsRefused) {
  // The shortest ClientHello of TLS 1.2 without supported_versions.
  std::string body = std::string("\x03\x03", 2) + std::string(32, 'r') + std::string(1, '\0') +
                     std::string("\x00\x02\x00\x2f", 4) + std::string("\x01\x00", 2);
  std::string message = std::string("\x01\x00\x00", 3) + static_cast<char>(body.size()) + body;
  put_on_the_wire(std::string("\x16\x03\x01\x00", 4) + static_cast<char>(message.size()) + message);
  EXPECT_EQ(listener_->shake(), TlsSession::Shaken::kFailed);
  EXPECT_NE(listener_->status().text().find("TLS"), std::string::npos)
      << listener_->status().to_string();
}

// The proof of the cluster's key, inside: the proof is good for this session alone.
class KeyedTls : public TlsSessions {
 protected:
  std::unique_ptr<tcp::LaneHandshake> handshake(bool dialer) const {
    auth::ClusterHello hello;
    hello.role = auth::Role::kAgent;
    hello.node = dialer ? 1 : 2;
    const DialRequest request{1, 2, 0, LaneRole::kBulk, LinkProtocol::kTcp};
    return make_keyed_handshake(hello, key_, dialer,
                                dialer ? tcp::make_dialing_handshake({1, 1, 0}, request)
                                       : tcp::make_accepting_handshake({2, 1, 0}));
  }
  // The end of the handshake on the listening side.
  Status listen(const tcp::Wire& dialing, const tcp::Wire& listening) {
    const auto one = handshake(true), other = handshake(false);
    auto state = tcp::LaneHandshake::State::kWantsRead;
    for (int i = 0; i < 20 && state != tcp::LaneHandshake::State::kDone; ++i) {
      static_cast<void>(one->advance(dialing));
      state = other->advance(listening);
      if (state == tcp::LaneHandshake::State::kFailed) return other->status();
    }
    return state == tcp::LaneHandshake::State::kDone ? Status() : Status(MC_TIMEOUT);
  }

  TempDirectory directory_;
  auth::ClusterKey key_;

  void SetUp() override {
    TlsSessions::SetUp();
    const std::string file = directory_.file("key", std::string(64, 'b'));
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
    key_ = auth::ClusterKey::from_file(file).value();
  }
};

TEST_F(KeyedTls, TheKeyIsProvenInsideTheSession) {
  shake();
  EXPECT_TRUE(listen({one_.get(), dialer_.get()}, {other_.get(), listener_.get()}).ok());
}

// A session with another name than the other end: an attacker in between.
class Between final : public TlsSession {
 public:
  explicit Between(TlsSession& under) : under_(under) {}
  Shaken shake() override { return under_.shake(); }
  ssize_t receive(std::span<const iovec> to) override { return under_.receive(to); }
  bool has_ended() const override { return under_.has_ended(); }
  ssize_t send(std::span<const iovec> from) override { return under_.send(from); }
  bool has_unsent() const override { return under_.has_unsent(); }
  bool flush() override { return under_.flush(); }
  std::string binding() const override { return std::string(32, 'm'); }
  const Status& status() const override { return under_.status(); }

 private:
  TlsSession& under_;
};

TEST_F(KeyedTls, AProofCarriedIntoAnotherSessionIsRefused) {
  shake();
  Between between(*dialer_);
  const Status status = listen({one_.get(), &between}, {other_.get(), listener_.get()});
  EXPECT_EQ(status.code(), MC_WRONG_KEY) << status.to_string();
}

TEST_F(KeyedTls, EachSideLearnsWhichSideLacksTls) {
  const auto plain = handshake(false);
  EXPECT_EQ(dialer_->shake(), TlsSession::Shaken::kWaits);
  EXPECT_EQ(plain->advance(other_.get()), tcp::LaneHandshake::State::kFailed);
  EXPECT_NE(plain->status().text().find("the peer speaks TLS and this agent does not"),
            std::string::npos)
      << plain->status().to_string();

  TlsSessions::SetUp();  // NOLINT(bugprone-parent-virtual-call): new connections, the same key
  const auto dialing = handshake(true);
  EXPECT_EQ(dialing->advance(one_.get()), tcp::LaneHandshake::State::kWantsRead);
  EXPECT_EQ(listener_->shake(), TlsSession::Shaken::kFailed);
  other_.reset();
  EXPECT_EQ(dialing->advance(one_.get()), tcp::LaneHandshake::State::kFailed);
  EXPECT_NE(dialing->status().text().find("the peer wants TLS"), std::string::npos)
      << dialing->status().to_string();
}

}  // namespace
}  // namespace mc::transport::testing
