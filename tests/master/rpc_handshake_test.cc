// SPDX-License-Identifier: Apache-2.0
//
// Only peers with the cluster's key are admitted. Overheard bytes do not help a peer without the
// key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/asio/write.hpp>
#include <filesystem>
#include <optional>
#include <thread>

#include "conformance/store/store_servers.h"
#include "master/rpc_ends.h"
#include "unit/golden_file.h"

namespace mc::metadata::rpc {
namespace {

using conformance::TempDirectory;

class RpcHandshakeTest : public testing::Test {
 protected:
  void listen(ListenerOptions options) {
    auto listener = Listener::create(loop_.io(), options, server_);
    ASSERT_TRUE(listener.has_value()) << listener.error().to_string();
    listener_ = std::move(*listener);
  }
  static ListenerOptions with_key(auth::ClusterKey key) {
    ListenerOptions options;
    options.own.role = auth::Role::kMaster;
    options.key = std::move(key);
    return options;
  }
  static ListenerOptions with_tls(const conformance::Certificates& certificates) {
    ListenerOptions options = with_key(key_of('k'));
    options.tls.cert = certificates.cert;
    options.tls.key = certificates.key;
    return options;
  }
  static TlsContext trusting(const std::string& ca) {
    TlsOptions options;
    options.ca = ca;
    auto tls = dialer_tls(options);
    EXPECT_TRUE(tls.has_value());
    return tls ? *tls : TlsContext();
  }
  Result<std::shared_ptr<RpcLink>> dial_with(auth::ClusterKey key, std::uint64_t cluster = 0,
                                             TlsContext tls = nullptr) {
    DialOptions options;
    options.address = "127.0.0.1:" + std::to_string(listener_->port());
    options.own.role = auth::Role::kAgent;
    options.own.node = 5;
    options.own.cluster = cluster;
    options.key = std::move(key);
    options.tls = std::move(tls);
    std::optional<Result<std::shared_ptr<RpcLink>>> result;
    dial(loop_.io().get_executor(), options, soon(), client_,
         [&](Result<std::shared_ptr<RpcLink>> link) { result = std::move(link); });
    EXPECT_TRUE(loop_.until([&] { return result.has_value(); }));
    if (!result.has_value()) return fail(MC_TIMEOUT, "watchdog");
    return *result;
  }
  // Runs a blocking peer beside the loop.
  void beside(const std::function<void()>& peer) {
    std::atomic<bool> done{false};
    std::thread thread([&] {
      peer();
      done = true;
    });
    EXPECT_TRUE(loop_.until([&] { return done.load(); }));
    thread.join();
  }
  bool refused_with(mc_status code) {
    return loop_.until([&] { return !server_.refused.empty(); }) &&
           server_.refused.back().code() == code && server_.links.empty();
  }

  Loop loop_;
  Ends server_;
  Ends client_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(RpcHandshakeTest, BothSidesLearnThePeersHello) {
  listen(with_key(key_of('k')));
  const auto link = dial_with(key_of('k'));
  ASSERT_TRUE(link.has_value()) << link.error().to_string();
  EXPECT_EQ((*link)->peer().role, auth::Role::kMaster);
  ASSERT_TRUE(loop_.until([&] { return !server_.links.empty(); }));
  EXPECT_EQ(server_.links[0]->peer().role, auth::Role::kAgent);
  EXPECT_EQ(server_.links[0]->peer().node, 5u);
  EXPECT_EQ(listener_->link_count(), 1u);
}

TEST_F(RpcHandshakeTest, AnotherKeyIsRefused) {
  listen(with_key(key_of('k')));
  EXPECT_EQ(dial_with(key_of('x')).error().code(), MC_WRONG_KEY);
  EXPECT_TRUE(refused_with(MC_WRONG_KEY));
}

TEST_F(RpcHandshakeTest, AMissingKeyIsRefusedOnEitherSide) {
  listen(with_key(key_of('k')));
  EXPECT_EQ(dial_with({}).error().code(), MC_WRONG_KEY);
  listen(with_key({}));
  EXPECT_EQ(dial_with(key_of('k')).error().code(), MC_WRONG_KEY);
  EXPECT_TRUE(server_.links.empty());
}

TEST_F(RpcHandshakeTest, AnotherClusterIsRefused) {
  listen(with_key(key_of('k')));
  EXPECT_EQ(dial_with(key_of('k'), auth::cluster_tag("other")).error().code(), MC_INVALID_ARGUMENT);
}

TEST_F(RpcHandshakeTest, AListenerForEverybodyIsAnExplicitChoice) {
  ListenerOptions options;
  options.host = "0.0.0.0";
  options.insecure = true;
  EXPECT_TRUE(Listener::create(loop_.io(), options, server_).has_value());
}

TEST_F(RpcHandshakeTest, AToolWithoutAClusterIsToldTheMasters) {
  auth::ClusterHello master, dialer;
  master.role = auth::Role::kMaster;
  master.cluster = auth::cluster_tag("other");
  master.nonce.fill('m');
  for (const auth::Role role : {auth::Role::kAgent, auth::Role::kEngine, auth::Role::kTool}) {
    dialer.role = role;
    EXPECT_EQ(auth::check_hello(master, dialer).ok(), role == auth::Role::kTool);
    EXPECT_EQ(auth::check_hello(dialer, master).ok(), role == auth::Role::kTool);
  }
  dialer.cluster = auth::cluster_tag("default");
  EXPECT_EQ(auth::check_hello(master, dialer).code(), MC_INVALID_ARGUMENT);
}

TEST_F(RpcHandshakeTest, AReachableListenerWithoutAKeyDoesNotStart) {
  ListenerOptions options;
  options.host = "0.0.0.0";
  const auto listener = Listener::create(loop_.io(), options, server_);
  ASSERT_FALSE(listener.has_value());
  EXPECT_EQ(listener.error().code(), MC_INVALID_ARGUMENT);
  EXPECT_NE(listener.error().text().find("without a cluster key"), std::string_view::npos);
  options.key = key_of('k');
  EXPECT_TRUE(Listener::create(loop_.io(), options, server_).has_value());
}

// The messages of a dialer with the key, and the answers.
struct Recorded {
  std::string hello, proof, listener_hello, verdict;
};
Recorded prove_by_hand(std::uint16_t port, const auth::ClusterKey& key) {
  Recorded heard;
  auth::ClusterHello own;
  own.keyed = true;
  own.nonce = auth::make_nonce();
  const auto hello = auth::encode_hello(own);
  heard.hello.assign(hello.data(), hello.size());
  RawSocket socket(port);
  socket.send(heard.hello);
  heard.listener_hello = socket.receive(auth::kHelloBytes);
  const auto peer = auth::decode_hello(heard.listener_hello);
  if (!peer) return heard;
  const auth::Proof proof = key.prove(auth::proof_text(true, own, *peer, {}));
  heard.proof.assign(proof.data(), proof.size());
  socket.send(heard.proof);
  heard.verdict = socket.receive(auth::kAdmissionBytes);
  return heard;
}

TEST_F(RpcHandshakeTest, RecordedBytesOfADialerAdmitNoPeer) {
  listen(with_key(key_of('k')));
  beside([&] {
    const Recorded heard = prove_by_hand(listener_->port(), key_of('k'));
    ASSERT_EQ(auth::decode_admission(heard.verdict).admission, auth::Admission::kWelcome);
    RawSocket again(listener_->port());
    again.send(heard.hello);
    again.receive(auth::kHelloBytes);
    again.send(heard.proof);
    const auth::AdmissionText answer = auth::decode_admission(again.receive(auth::kAdmissionBytes));
    EXPECT_EQ(answer.admission, auth::Admission::kRefused);
    EXPECT_EQ(answer.proof, auth::Proof{}) << "a stranger gets no proof";
    EXPECT_TRUE(again.closed_by_peer());
  });
  EXPECT_EQ(server_.links.size(), 1u);
}

TEST_F(RpcHandshakeTest, RecordedBytesOfAListenerConvinceNoDialer) {
  listen(with_key(key_of('k')));
  Recorded heard;
  beside([&] { heard = prove_by_hand(listener_->port(), key_of('k')); });
  boost::asio::ip::tcp::acceptor impostor(loop_.io(),
                                          {boost::asio::ip::make_address("127.0.0.1"), 0});
  boost::asio::ip::tcp::socket peer(loop_.io());
  impostor.async_accept(peer, [&](const boost::system::error_code&) {
    boost::asio::write(peer, boost::asio::buffer(heard.listener_hello + heard.verdict));
  });
  DialOptions options;
  options.address = "127.0.0.1:" + std::to_string(impostor.local_endpoint().port());
  options.key = key_of('k');
  std::optional<Status> result;
  dial(loop_.io().get_executor(), options, soon(), client_,
       [&](const Result<std::shared_ptr<RpcLink>>& link) {
         result = link ? Status() : link.error();
       });
  ASSERT_TRUE(loop_.until([&] { return result.has_value(); }));
  EXPECT_EQ(result->code(), MC_WRONG_KEY) << result->to_string();
}

TEST_F(RpcHandshakeTest, AProofIsValidInOneDirectionOnly) {
  const auth::ClusterKey key = key_of('k');
  const auth::ClusterHello one, two;
  EXPECT_TRUE(key.proven(auth::proof_text(true, one, two, "b"),
                         key.prove(auth::proof_text(true, one, two, "b"))));
  EXPECT_FALSE(key.proven(auth::proof_text(true, one, two, "b"),
                          key.prove(auth::proof_text(false, one, two, "b"))));
  EXPECT_FALSE(key.proven(auth::proof_text(true, one, two, "b"),
                          key.prove(auth::proof_text(true, one, two, "c"))));
}

TEST_F(RpcHandshakeTest, IdleStrangersBlockNoPeer) {
  ListenerOptions options = with_key(key_of('k'));
  options.max_unproven = 4;
  listen(options);
  std::vector<std::unique_ptr<RawSocket>> idle;
  beside([&] {
    for (int i = 0; i < 8; ++i) idle.push_back(std::make_unique<RawSocket>(listener_->port()));
    EXPECT_TRUE(idle.front()->closed_by_peer());
  });
  EXPECT_TRUE(dial_with(key_of('k')).has_value());
}

TEST_F(RpcHandshakeTest, AStrangerIsDisconnectedAtTheDeadline) {
  ListenerOptions options = with_key(key_of('k'));
  options.handshake_timeout_ns = 20'000'000;
  listen(options);
  beside([&] {
    RawSocket idle(listener_->port());
    idle.send("mcrpc");
    EXPECT_TRUE(idle.closed_by_peer());
  });
  EXPECT_TRUE(refused_with(MC_TIMEOUT));
}

TEST_F(RpcHandshakeTest, OtherProtocolsAreRefused) {
  listen(with_key({}));
  beside([&] {
    RawSocket http(listener_->port());
    http.send("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: " + std::string(40, 'a') +
              "\r\n\r\n");
    EXPECT_TRUE(http.closed_by_peer());
  });
  EXPECT_TRUE(refused_with(MC_VERSION_MISMATCH));
}

TEST_F(RpcHandshakeTest, AFullListenerTellsAPeerWithTheKey) {
  ListenerOptions options = with_key(key_of('k'));
  options.max_links = 1;
  listen(options);
  const auto first = dial_with(key_of('k'));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(dial_with(key_of('k')).error().code(), MC_BUSY);
  EXPECT_EQ(dial_with(key_of('x')).error().code(), MC_WRONG_KEY);
}

TEST_F(RpcHandshakeTest, TlsChecksTheCertificateBeforeTheProof) {
  const TempDirectory directory;
  const TempDirectory elsewhere;
  const conformance::Certificates certificates(directory);
  const conformance::Certificates others(elsewhere);
  listen(with_tls(certificates));
  const TlsContext trusted = trusting(certificates.ca);
  const auto link = dial_with(key_of('k'), 0, trusted);
  ASSERT_TRUE(link.has_value()) << link.error().to_string();
  EXPECT_EQ(dial_with(key_of('x'), 0, trusted).error().code(), MC_WRONG_KEY);
  EXPECT_EQ(dial_with(key_of('k'), 0, trusting(others.ca)).error().code(), MC_PERMISSION_DENIED);
  EXPECT_FALSE(dial_with(key_of('k')).has_value()) << "plain bytes to a TLS listener";
}

TEST_F(RpcHandshakeTest, RenewedCertificatesCountFromTheNextHandshakeOn) {
  const TempDirectory directory;
  const TempDirectory elsewhere;
  const conformance::Certificates certificates(directory);
  const conformance::Certificates others(elsewhere);
  listen(with_tls(certificates));
  const TlsContext tls = trusting(certificates.ca);
  const auto before = dial_with(key_of('k'), 0, tls);
  ASSERT_TRUE(before.has_value()) << before.error().to_string();
  std::filesystem::rename(others.cert, certificates.cert);
  std::filesystem::rename(others.key, certificates.key);
  EXPECT_EQ(dial_with(key_of('k'), 0, tls).error().code(), MC_PERMISSION_DENIED)
      << "of another authority";
  std::filesystem::rename(others.ca, certificates.ca);
  const auto after = dial_with(key_of('k'), 0, tls);
  EXPECT_TRUE(after.has_value()) << after.error().to_string();
}

TEST(RpcGolden, HandshakeAndFrameEqualTheGoldenFileOfVersion1) {
  const auto sections = golden::read("rpc-v1.txt");
  const auto expect = [&](const std::string& name, std::string_view bytes) {
    const auto span = std::as_bytes(std::span(bytes));
    const auto section = sections.find(name);
    if (section == sections.end() || !std::ranges::equal(section->second, span)) {
      ADD_FAILURE() << "rpc-v1.txt differs:\n" << golden::section_text(name, span);
    }
  };
  const auto view = [](const auto& bytes) { return std::string_view(bytes.data(), bytes.size()); };
  auth::ClusterHello dialer{auth::kProtocolVersion,      auth::Role::kAgent, true, 0, 5, 9, {},
                            auth::cluster_tag("default")};
  dialer.nonce.fill('d');
  auth::ClusterHello listener = dialer;
  listener.role = auth::Role::kMaster;
  listener.nonce.fill('l');
  const auto hello = auth::encode_hello(dialer);
  expect("hello", view(hello));
  EXPECT_EQ(*auth::decode_hello(view(hello)), dialer);
  const auth::Proof proof = key_of('k').prove(auth::proof_text(true, dialer, listener, {}));
  expect("proof of the dialer", view(proof));
  const auth::Proof answer = key_of('k').prove(auth::proof_text(false, dialer, listener, {}));
  expect("admission", view(auth::encode_admission(auth::Admission::kWelcome, answer)));
  const FrameHead head{16, FrameKind::kAnswer, 6, MC_BUSY, 0x01020304, 1500, 0x1122334455667788};
  expect("frame", view(encode_frame(head)));
}

TEST(ClusterKeyFile, AFileThatOthersMayReadIsRefused) {
  const TempDirectory directory;
  const std::string path = directory.file("key", std::string(64, 'a') + "\n");
  for (const mode_t mode : {mode_t{0604}, mode_t{0602}, mode_t{0660}}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(auth::ClusterKey::from_file(path).error().code(), MC_PERMISSION_DENIED);
  }
  // A mounted secret of root.
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(auth::ClusterKey::from_file(path).has_value(), ::geteuid() == 0);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const auto key = auth::ClusterKey::from_file(path);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->secret(), std::string(64, 'a'));
}

TEST(ClusterKeyFile, TheEnvironmentNamesTheKeyOfAProcessWithoutAFile) {
  ASSERT_EQ(::setenv("MC_CLUSTER_KEY", std::string(32, 'e').c_str(), 1), 0);
  const auto found = auth::ClusterKey::find("");
  ASSERT_EQ(::setenv("MC_CLUSTER_KEY", "short", 1), 0);
  const auto refused = auth::ClusterKey::find("");
  ASSERT_EQ(::setenv("MC_CLUSTER_KEY_FILE", "/nonexistent/key", 1), 0);
  const auto first = auth::ClusterKey::find("");
  ::unsetenv("MC_CLUSTER_KEY_FILE");
  ::unsetenv("MC_CLUSTER_KEY");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->secret(), std::string(32, 'e'));
  EXPECT_THAT(std::string(refused.error().text()), testing::HasSubstr("MC_CLUSTER_KEY: "));
  EXPECT_THAT(std::string(first.error().text()), testing::HasSubstr("/nonexistent/key"));
  EXPECT_FALSE(auth::ClusterKey::find("")->given());
}

TEST(ClusterKeyFile, TheHttpTokenFollowsFromTheKey) {
  std::string text;
  while (text.size() < 64) text += "ab";
  EXPECT_EQ(auth::ClusterKey::from_text(text)->http_token(),
            "bfa28922ca47c99062a570bf54ca81e4523cbf3e0a342df78e3b283806b968a9");
}

auth::ClusterKey keys_of(const std::string& text) {
  auto keys = auth::ClusterKey::from_text(text);
  EXPECT_TRUE(keys.has_value()) << keys.error().to_string();
  return keys ? *keys : auth::ClusterKey();
}

TEST_F(RpcHandshakeTest, HostsOfNeighbouringStepsOfAChangeOfTheKeyAdmitEachOther) {
  const std::string old(32, 'o');
  const std::string renewed(32, 'r');
  // A dialer proves itself by its first key; a listener accepts each of its own.
  const std::vector<std::string> steps{old, old + "\n" + renewed + "\n",
                                       renewed + "\n" + old + "\nhashes " + old + "\n",
                                       renewed + "\nhashes " + old + "\n"};
  for (std::size_t listening = 0; listening < steps.size(); ++listening) {
    listen(with_key(keys_of(steps[listening])));
    for (std::size_t dialing = 0; dialing < steps.size(); ++dialing) {
      const auto link = dial_with(keys_of(steps[dialing]));
      const bool admitted = listening == 0 ? dialing <= 1 : listening < 3 || dialing >= 2;
      EXPECT_EQ(link.has_value(), admitted) << listening << " from " << dialing;
      if (!link) {
        EXPECT_EQ(link.error().code(), MC_WRONG_KEY);
      }
      EXPECT_EQ(keys_of(steps[dialing]).secret(), old) << "the objects stay";
    }
  }
}

TEST(ClusterKeyFile, ALineThatIsNoKeyIsNamed) {
  const std::string key(32, 'k');
  const auto error_of = [](const std::string& text) {
    const auto keys = auth::ClusterKey::from_text(text);
    return keys ? std::string() : std::string(keys.error().text());
  };
  EXPECT_THAT(error_of(key + "\nshort\n"), testing::HasSubstr("line 2"));
  EXPECT_THAT(error_of(key + "\nhashes short"), testing::HasSubstr("line 2"));
  EXPECT_THAT(error_of(key + "\n\n" + key), testing::HasSubstr("line 2"));
  EXPECT_THAT(error_of("hashes " + key), testing::HasSubstr("no line with the key itself"));
  EXPECT_THAT(error_of(""), testing::HasSubstr("line 1"));
  EXPECT_THAT(error_of(key + "\nhashes " + key + "\nhashes " + key),
              testing::HasSubstr("line 3: a second line 'hashes'"));
  EXPECT_EQ(error_of(key + "\r\n\n"), "");
}

TEST(ClusterKeyFile, LengthsOutsideItsBoundsAreRefused) {
  const TempDirectory directory;
  const auto load = [&](std::size_t bytes) {
    const std::string path = directory.file("key", std::string(bytes, 'a'));
    ::chmod(path.c_str(), 0600);
    return auth::ClusterKey::from_file(path).has_value();
  };
  EXPECT_FALSE(load(auth::kMinKeyBytes - 1));
  EXPECT_TRUE(load(auth::kMinKeyBytes));
  EXPECT_TRUE(load(auth::kMaxKeyBytes));
  EXPECT_FALSE(load(auth::kMaxKeyBytes + 1));
  EXPECT_FALSE(load(auth::kMaxKeyFileBytes + 1));
  EXPECT_FALSE(auth::ClusterKey::from_file(directory.path()).has_value());
  EXPECT_FALSE(auth::ClusterKey::from_file(directory.file("none")).has_value());
}

}  // namespace
}  // namespace mc::metadata::rpc
