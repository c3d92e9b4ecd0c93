// SPDX-License-Identifier: Apache-2.0
//
// Agents with TLS, as users see the agents.
#include "cluster/cluster_fixture.h"
#include "conformance/store/store_servers.h"
#include "conformance/transport/authority.h"

namespace mc::cluster {
namespace {

using conformance::Authority;
using conformance::TempDirectory;

class ClusterTls : public ClusterTest {
 protected:
  AgentOptions secured() const {
    const transport::tls::Files files = authority_.issue("agent", "IP:127.0.0.1");
    return {{"peer_tls_cert", files.cert}, {"peer_tls_key", files.key}, {"peer_tls_ca", files.ca}};
  }

  TempDirectory directory_;
  Authority authority_{directory_.path(), "cluster"};
};

TEST_F(ClusterTls, ObjectsOfAnySizeAreReadOnAnotherHostAndByTcpAlone) {
  start(2, secured());
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4096}, std::size_t{(1 << 20) + 1}, std::size_t{20 << 20}}) {
    const std::string key = "of " + std::to_string(size);
    const std::string value = content(key, size);
    ASSERT_EQ(put(0, key, value), MC_OK) << mc_last_error();
    EXPECT_TRUE(get(1, key) == value) << key;
  }
  const std::string why = ask(1, "rails")["one_sided"]["obstacles"].asString();
  EXPECT_NE(why.find("in the clear"), std::string::npos) << why;
}

TEST_F(ClusterTls, AnAgentWithoutTlsGetsNothingAndBothLogsSayWhy) {
  start(1, secured());
  const std::string value = content("secured", 100'000);
  ASSERT_EQ(put(0, "secured", value), MC_OK);
  for (const char* const option : {"peer_tls_cert", "peer_tls_key", "peer_tls_ca"}) {
    options_.erase(option);
  }
  agents_.push_back(std::make_unique<conformance::AgentProcess>());
  start_agent(1);
  ASSERT_TRUE(until([&] { return exists(1, "secured"); })) << "the master knows of it";
  EXPECT_EQ(get(1, "secured"), "<MC_HOLDER_AWAY>");
  EXPECT_TRUE(until([&] {
    return agents_[0]->log().find("the peer does not speak TLS: give it peer_tls_cert") !=
               std::string::npos &&
           agents_[1]->log().find("the peer wants TLS: give this agent peer_tls_cert") !=
               std::string::npos;
  })) << agents_[0]->log()
      << agents_[1]->log();
}

TEST_F(ClusterTls, MastersAcceptOnlyTlsWithTheRightCertificates) {
  const transport::tls::Files shown = authority_.issue("master", "IP:127.0.0.1");
  start(2, {{"master_tls_ca", shown.ca}},
        {"--cluster-store", "memory://", "--recover-ms", option_time(100), "--tls-cert", shown.cert,
         "--tls-key", shown.key});
  ASSERT_EQ(put(0, "told", "of"), MC_OK) << mc_last_error();
  EXPECT_EQ(get(1, "told"), "of");
  // An agent without TLS fails, and so does an agent that trusts another authority. The log says
  // why.
  const Authority other(directory_.path(), "other");
  const auto says = [&](const std::string& words) {
    agents_.push_back(std::make_unique<conformance::AgentProcess>());
    agents_.back()->start(options_);
    return until([&] { return agents_.back()->log().find(words) != std::string::npos; }) &&
           !ask(agents_.size() - 1, "status")["cluster"]["master_ready"].asBool();
  };
  options_.erase("master_tls_ca");
  EXPECT_TRUE(says("master_tls_ca")) << agents_.back()->log();
  options_["master_tls_ca"] = other.issue("x", "IP:127.0.0.1").ca;
  EXPECT_TRUE(says("the peer's certificate is refused: unable to get local issuer certificate"))
      << agents_.back()->log();
}

TEST_F(ClusterTls, AMasterInsideAnAgentShowsTheAgentsCertificate) {
  options_ = secured();
  options_["master_tls_ca"] = options_["peer_tls_ca"];
  options_["master_listen"] = "127.0.0.1:" + std::to_string(conformance::free_port());
  options_["pool_bytes"] = "64MiB";
  agents_.push_back(std::make_unique<conformance::AgentProcess>());
  start_agent(0);
  EXPECT_EQ(put(0, "inside", "an agent"), MC_OK) << mc_last_error();
}

}  // namespace
}  // namespace mc::cluster
