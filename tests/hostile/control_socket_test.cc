// SPDX-License-Identifier: Apache-2.0
//
// Messages on the agent's socket that no honest client sends.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <random>

#include "attack_test.h"
#include "libmc/base/clock.h"

namespace mc::hostile {

namespace {

using ControlSocket = AttackTest;

Fd connect_to(const std::string& path) {
  auto socket = connect_unix(path, kWatchdogNs);
  EXPECT_TRUE(socket.has_value());
  return socket ? std::move(*socket) : Fd();
}

// The agent's status; nullopt if the agent closed or sent no valid answer.
std::optional<int> status_of(const Message& message) {
  const auto header =
      shm::decode_control<shm::ControlHeader>(message.bytes, shm::ControlType::kAnswer, nullptr);
  std::string_view text;
  const auto with_text =
      shm::decode_control<shm::ControlHeader>(message.bytes, shm::ControlType::kAnswer, &text);
  if (!header && !with_text) return std::nullopt;
  return with_text->status;
}

std::string admin(int socket, const std::string& text) {
  shm::ControlHeader header = make_control(shm::ControlType::kAdmin);
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> bytes(sizeof header + text.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!text.empty()) std::memcpy(bytes.data() + sizeof header, text.data(), text.size());
  const Message answer = converse(socket, bytes);
  return {reinterpret_cast<const char*>(answer.bytes.data()), answer.bytes.size()};
}

TEST_F(ControlSocket, EveryLengthOfAHalfMessageEndsTheConnection) {
  const shm::ClientHello hello = make_hello();
  for (std::size_t size = 1; size < sizeof hello; ++size) {
    const Fd socket = connect_to(socket_path());
    const Message answer = converse(socket.get(), bytes_of(hello).first(size));
    ASSERT_NE(status_of(answer).value_or(MC_INVALID_ARGUMENT), MC_OK) << size;
    EXPECT_TRUE(answer.fds.empty());
  }
}

TEST_F(ControlSocket, OversizedMessagesAreRefused) {
  std::vector<std::byte> bytes(shm::kMaxControlBytes + 1);
  const shm::ControlHeader header = make_control(shm::ControlType::kAdmin);
  std::memcpy(bytes.data(), &header, sizeof header);
  for (const std::size_t size : {shm::kMaxControlBytes + 1, shm::kMaxControlBytes}) {
    const Fd socket = connect_to(socket_path());
    const auto status = status_of(converse(socket.get(), std::span(bytes).first(size)));
    EXPECT_NE(status.value_or(MC_INVALID_ARGUMENT), MC_OK);
  }
}

TEST_F(ControlSocket, WrongMagicVersionAndTypeAreRefused) {
  for (int what = 0; what < 5; ++what) {
    shm::ClientHello hello = make_hello();
    if (what == 0) hello.header.magic ^= 1;
    if (what == 1) hello.header.version += 1;
    if (what == 2) hello.layout_version += 1;
    if (what == 3) hello.header.text_bytes = 1;
    if (what == 4) hello.header.type = static_cast<std::uint32_t>(shm::ControlType::kWelcome);
    const Fd socket = connect_to(socket_path());
    const auto status = status_of(converse(socket.get(), bytes_of(hello)));
    EXPECT_NE(status.value_or(MC_INVALID_ARGUMENT), MC_OK) << what;
  }
  for (std::uint32_t type = 0; type < 300; ++type) {
    if (type == 6 || type == 8) continue;  // admin and goodbye need no session
    const Fd socket = connect_to(socket_path());
    const auto header = make_control(static_cast<shm::ControlType>(type * 0x01010101u));
    if (header.type == 3 || header.type == 4) continue;
    const auto status = status_of(converse(socket.get(), bytes_of(header)));
    EXPECT_NE(status.value_or(MC_INVALID_ARGUMENT), MC_OK) << type;
  }
}

TEST_F(ControlSocket, MalformedHellosOpenNoSession) {
  for (int what = 0; what < 6; ++what) {
    shm::ClientHello hello = make_hello();
    if (what == 0) hello.channel_count = 0;
    if (what == 1) hello.channel_count = MC_MAX_CHANNELS + 1;
    if (what == 2) hello.channel_count = 0xffffffff;
    if (what == 3) std::memset(hello.name_space, 'x', sizeof hello.name_space);
    if (what == 4) std::memcpy(hello.name_space, "de\nfault", 9);
    if (what == 5) std::memcpy(hello.name_space, "no-such", 8);
    const Fd socket = connect_to(socket_path());
    EXPECT_NE(status_of(converse(socket.get(), bytes_of(hello))).value_or(MC_OK), MC_OK) << what;
  }
  EXPECT_EQ(session_count(), 1u);
}

TEST_F(ControlSocket, AHundredThousandRandomMessagesAreOnlyRefused) {
  std::mt19937_64 random(99);
  const int count = is_long_run() ? 2'000'000 : kAddressSanitizer ? 20'000 : 100'000;
  Fd socket;
  for (int i = 0; i < count; ++i) {
    if (!socket) socket = connect_to(socket_path());
    std::vector<std::byte> bytes(1 + random() % 400);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    shm::ControlHeader header =
        make_control(static_cast<shm::ControlType>(random() % 10), random());
    header.text_bytes =
        static_cast<std::uint32_t>(bytes.size() > sizeof header ? bytes.size() - sizeof header : 0);
    // A valid start reaches deeper code.
    if (random() % 2 == 0)
      std::memcpy(bytes.data(), &header, std::min(bytes.size(), sizeof header));
    const Message answer = converse(socket.get(), bytes);
    if (answer.bytes.empty() || status_of(answer).value_or(MC_OK) != MC_OK) socket.reset();
  }
  socket.reset();
  EXPECT_EQ(session_count(), 1u);
}

TEST_F(ControlSocket, DescriptorsSentAlongAreNotKept) {
  const std::size_t before = agent_.fd_count();
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<int> fds(kMaxFdsPerMessage, null.get());
  const Fd socket = connect_to(socket_path());
  std::size_t refused = 0;
  for (int i = 0; i < 500; ++i) {
    const auto header = make_control(shm::ControlType::kGoodbye);
    // From Linux 6.16 on, the sender learns that the agent accepts no descriptors.
    if (!send_message(socket.get(), bytes_of(header), fds).ok()) {
      ++refused;
      continue;
    }
    ASSERT_TRUE(wait_readable(socket.get(), kWatchdogNs));
    ASSERT_TRUE(receive_message(socket.get(), shm::kMaxControlBytes).has_value());
  }
  RecordProperty("refused_by_kernel", static_cast<int>(refused));
  // The agent answers before closing the received descriptors, and ends a connection in its next
  // turn. Further requests therefore come later.
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (agent_.fd_count() > before + 1 && now_ns() < deadline_ns) agent_.ask("status");
  EXPECT_LE(agent_.fd_count(), before + 1);
}

TEST_F(ControlSocket, ASecondHelloOnAConnectionIsRefused) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  // A session without a channel would end with its connection.
  converse(session.socket(), bytes_of(make_control(shm::ControlType::kOpenChannel)));
  const auto status = status_of(converse(session.socket(), bytes_of(make_hello())));
  EXPECT_EQ(status.value_or(MC_OK), MC_INVALID_ARGUMENT);
  // The session waits for its process or a resume. A connection with the secret ends the session.
  const Fd again = connect_to(socket_path());
  shm::ClientHello resume = make_hello();
  resume.resume_session = session.welcome().session_id;
  resume.resume_secret = session.welcome().session_secret;
  EXPECT_EQ(converse(again.get(), bytes_of(resume)).fds.size(), session.fds().size());
  converse(again.get(), bytes_of(make_control(shm::ControlType::kGoodbye)));
  EXPECT_EQ(session_count(), 1u);
}

TEST_F(ControlSocket, ASessionWithoutAChannelCanBeResumed) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  shm::ClientHello resume = make_hello();
  resume.resume_session = session.welcome().session_id;
  resume.resume_secret = session.welcome().session_secret;
  auto socket = connect_unix(socket_path(), kWatchdogNs);
  ASSERT_TRUE(socket.has_value());
  EXPECT_FALSE(converse(socket->get(), bytes_of(resume)).fds.empty());
  converse(socket->get(), bytes_of(make_control(shm::ControlType::kGoodbye)));
}

TEST_F(ControlSocket, ResumingWithoutTheSecretGivesNothing) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    shm::ClientHello resume = make_hello();
    resume.resume_session = i < 100 ? session.welcome().session_id : 1 + random() % 4;
    resume.resume_secret =
        i % 3 == 0 ? random() : session.welcome().session_secret ^ (1ull << i % 64);
    const Fd socket = connect_to(socket_path());
    const Message answer = converse(socket.get(), bytes_of(resume));
    EXPECT_TRUE(answer.fds.empty());
    EXPECT_EQ(status_of(answer).value_or(MC_OK), MC_SESSION_LOST);
  }
  EXPECT_TRUE(session.open_channel());
}

TEST_F(ControlSocket, ChannelsOutOfRangeOrOpenedTwiceAreRefused) {
  HostileSession session(socket_path(), "default", 3);
  ASSERT_TRUE(session.open());
  for (const std::uint64_t number :
       {std::uint64_t{3}, std::uint64_t{64}, std::uint64_t{0xffff}, std::uint64_t{0x10000},
        std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    const auto open = make_control(shm::ControlType::kOpenChannel, number);
    EXPECT_EQ(status_of(converse(session.socket(), bytes_of(open))).value_or(MC_OK),
              MC_INVALID_ARGUMENT);
  }
  EXPECT_TRUE(session.open_channel(2));
  EXPECT_FALSE(session.open_channel(2));
}

TEST_F(ControlSocket, StagingOfAbsurdSizeIsRefused) {
  HostileSession session(socket_path());
  ASSERT_TRUE(session.open());
  for (const std::uint64_t bytes :
       {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{MC_MAX_STAGING_BYTES} + 1,
        std::uint64_t{1} << 40, (std::uint64_t{32} << 20) + 1}) {
    EXPECT_FALSE(session.open_staging(bytes)) << bytes;
  }
  EXPECT_TRUE(session.open_staging(4096));
}

TEST_F(ControlSocket, AdminTextsThatAreNoRequestsGetAnError) {
  const Fd socket = connect_to(socket_path());
  constexpr std::size_t kMost = shm::kMaxControlBytes - sizeof(shm::ControlHeader);
  std::vector<std::string> texts{"",
                                 "{",
                                 "null",
                                 "[]",
                                 "\"status\"",
                                 "{}",
                                 "{\"verb\":7}",
                                 std::string(kMost, '['),
                                 std::string(kMost, '{'),
                                 "{\"verb\":\"" + std::string(60000, 'v') + "\"}",
                                 "{\"verb\":\"ls\",\"namespace\":\"default\",\"cursor\":-1}",
                                 "{\"verb\":\"ls\",\"namespace\":\"default\",\"cursor\":1e300}",
                                 std::string("{\"verb\":\"\0\xff\xc0\x80\"}", 15)};
  std::string deep;
  for (std::size_t i = 0; i < kMost / 5; ++i) deep += "{\"a\":";
  texts.push_back(deep);
  std::mt19937_64 random(4);
  for (int i = 0; i < 200; ++i) {
    std::string noise(random() % 2000, ' ');
    for (char& c : noise) c = static_cast<char>(random());
    texts.push_back(noise);
  }
  for (const std::string& text : texts) {
    const std::string answer = admin(socket.get(), text);
    EXPECT_NE(answer.find('{'), std::string::npos) << text.substr(0, 50);
  }
}

TEST_F(ControlSocket, ConnectionsThatNeverReadTheirAnswersLoseThemAlone) {
  std::vector<Fd> sockets;
  for (int i = 0; i < 20; ++i) sockets.push_back(connect_to(socket_path()));
  const std::string text = "{\"verb\":\"ls\",\"namespace\":\"default\"}";
  shm::ControlHeader header = make_control(shm::ControlType::kAdmin);
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> bytes(sizeof header + text.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, text.data(), text.size());
  for (int i = 0; i < 1000; ++i) {
    // If the queue is full, the agent answers late; the test drops messages that do not fit.
    for (const Fd& socket : sockets) {
      ::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  EXPECT_TRUE(honest_->works_on(20)) << honest_->trouble();
}

}  // namespace

}  // namespace mc::hostile
