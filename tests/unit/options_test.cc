// SPDX-License-Identifier: Apache-2.0
#include "agent/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "agent/options/option_table.h"
#include "agent/pool/policy/policy.h"
#include "libmc/options/nearest.h"
#include "libmc/options/option_file.h"
#include "libmc/options/option_loader.h"

namespace mc::agent {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Flags = std::vector<std::pair<std::string, std::string>>;

constexpr std::uint64_t kMi = 1ull << 20;
constexpr std::uint64_t kGi = 1ull << 30;
constexpr std::uint64_t kTi = 1ull << 40;

class Environment {
 public:
  Environment(std::vector<std::string> entries) : entries_(std::move(entries)) {
    for (const auto& entry : entries_) pointers_.push_back(entry.c_str());
    pointers_.push_back(nullptr);
  }
  const char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> entries_;
  std::vector<const char*> pointers_;
};

Result<LoadedOptions> load(std::string_view toml, const Flags& flags = {},
                           std::vector<std::string> environment = {}) {
  return load_options_text(toml, "agent.toml", flags, Environment(std::move(environment)).get());
}

// The error's text, or "" for success.
std::string error_of(const Result<LoadedOptions>& loaded) {
  if (loaded) return "";
  EXPECT_EQ(loaded.error().code(), MC_INVALID_ARGUMENT);
  return std::string(loaded.error().text());
}

std::string refusal(std::string_view toml) { return error_of(load(toml)); }
std::string flag_refusal(const std::string& name, const std::string& text) {
  return error_of(load("", {{name, text}}));
}

OptionText text_of(const LoadedOptions& loaded, std::string_view name) {
  for (const auto& text : loaded.text) {
    if (text.name == name) return text;
  }
  ADD_FAILURE() << "no option " << name;
  return {};
}

TEST(OptionsTest, NothingGivenYieldsTheDefaults) {
  const auto loaded = load_options("", {}, nullptr);
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  const Options& options = loaded->options;
  EXPECT_EQ(options.runtime_dir, "/dev/shm/mc-" + std::to_string(::geteuid()));
  EXPECT_EQ(options.socket, options.runtime_dir + "/agent.sock");
  EXPECT_EQ(options.socket_mode, 0600u);
  EXPECT_EQ(options.pool_bytes, kGi);
  EXPECT_EQ(options.policy, policy_names().front());
  EXPECT_EQ(options.arenas, 1u);
  EXPECT_TRUE(options.namespaces.empty());
  for (const auto& text : loaded->text) {
    EXPECT_EQ(text.source, "default") << text.name;
    EXPECT_EQ(text.value, text.default_value) << text.name;
  }
}

TEST(OptionsTest, TheRuntimeDirectoryOfSystemdIsTheDefault) {
  const auto loaded = load("", {}, {"RUNTIME_DIRECTORY=/run/mc:/run/other"});
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->options.runtime_dir, "/run/mc");
  EXPECT_EQ(loaded->options.socket, "/run/mc/agent.sock");
  const auto told = load("runtime_dir = '/run/told'", {}, {"RUNTIME_DIRECTORY=/run/mc"});
  ASSERT_TRUE(told);
  EXPECT_EQ(told->options.socket, "/run/told/agent.sock");
  EXPECT_THAT(error_of(load("", {}, {"RUNTIME_DIRECTORY=run"})), HasSubstr("RUNTIME_DIRECTORY"));
}

TEST(OptionsTest, LaterSourcesWinAndEachIsNamed) {
  const auto loaded = load("pool_bytes = '2GiB'\narenas = 2\nspin_us = 7\n", {{"arenas", "4"}},
                           {"MC_AGENT_ARENAS=3", "MC_AGENT_SPIN_US=8"});
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->options.pool_bytes, 2 * kGi);
  EXPECT_EQ(loaded->options.spin_us, 8u);
  EXPECT_EQ(loaded->options.arenas, 4u);
  EXPECT_EQ(text_of(*loaded, "pool_bytes").source, "file");
  EXPECT_EQ(text_of(*loaded, "pool_bytes").value, "2GiB");
  EXPECT_EQ(text_of(*loaded, "pool_bytes").default_value, "1GiB");
  EXPECT_EQ(text_of(*loaded, "spin_us").source, "environment");
  EXPECT_EQ(text_of(*loaded, "arenas").source, "flag");
  EXPECT_EQ(text_of(*loaded, "policy").source, "default");
}

TEST(OptionsTest, EveryOptionCanBeSetByEverySource) {
  for (const auto& row : agent_rows()) {
    const std::string name(row.name);
    std::string value = row.text_of(load("")->options);
    if (row.domain.kind == ValueKind::kChoice) value = row.domain.choices.back();
    if (row.domain.kind == ValueKind::kUids) value = "1000,1001";
    if (value.empty()) value = row.domain.kind == ValueKind::kPath ? "/some/file" : "text";
    std::string variable = "MC_AGENT_" + name;
    for (char& c : variable) c = static_cast<char>(std::toupper(c));
    const Result<LoadedOptions> all[] = {
        load(name + " = '" + value + "'"), load("", {}, {variable + "=" + value}),
        load("", {{name, value}}), load_embedded_options(name + " = " + value)};
    for (const auto& loaded : all) {
      ASSERT_TRUE(loaded) << loaded.error().to_string();
      EXPECT_EQ(text_of(*loaded, name).value, value);
      EXPECT_NE(text_of(*loaded, name).source, "default");
    }
  }
}

TEST(OptionsTest, GpusAreAListOfNumbersOrAWord) {
  for (const char* gpus : {"auto", "none", "0", "3,0,63"}) {
    EXPECT_TRUE(load("", {{"gpus", gpus}})) << gpus;
  }
  for (const char* gpus : {"", ",", "all", "0,0", "-1", "64", "1x", "auto,1", "0 1"}) {
    EXPECT_THAT(error_of(load("", {{"gpus", gpus}})), HasSubstr("gpus")) << gpus;
  }
  EXPECT_EQ(numbers_of_gpus("3,0").value(), (std::vector<int>{3, 0}));
  EXPECT_EQ(numbers_of_gpus("none").value(), std::vector<int>());
  EXPECT_EQ(numbers_of_gpus("auto").value(), std::nullopt);
}

TEST(OptionsTest, AWrongValueIsRefusedEvenWhenAFlagOverridesIt) {
  EXPECT_THAT(error_of(load("arenas = 65", {{"arenas", "2"}})), HasSubstr("agent.toml, line 1"));
}

struct Range {
  std::string name, below, lowest, highest, above;
};

TEST(OptionsTest, EveryRangeIsHeldAtBelowAndAbove) {
  const std::string longest_dir = "/" + std::string(94, 'd');
  const std::string longest_socket = "/" + std::string(106, 's');
  const Range ranges[] = {
      {"arenas", "0", "1", "64", "65"},
      {"spin_us", "-1", "0", "1000000", "1000001"},
      {"max_sessions_per_user", "0", "1", "1024", "1025"},
      {"keep_seconds", "0", "1", "604800", "604801"},
      {"end_idle_seconds", "-1", "0", "604800", "604801"},
      {"pool_bytes", "1048575", "1MiB", "1TiB", "1025GiB"},
      {"max_pool_bytes", "1023MiB", "1GiB", "1TiB", "1025GiB"},
      {"capacity_bytes", "-1", "0", "1GiB", "1073741825"},
      {"session_quota_bytes", "-1", "0", "64TiB", "65TiB"},
      {"socket_mode", "0577", "0600", "0777", "01000"},
      {"runtime_dir", longest_dir + "d", "/", longest_dir, longest_dir + "d"},
      {"socket", longest_socket + "s", "/s", longest_socket, longest_socket + "s"},
      {"allow_uids", "-1", "0", "4294967294", "4294967295"},
      {"tier_bytes", "67108863", "64MiB", "64TiB", "65TiB"},
      {"tier_endurance_bytes_per_day", "67108863", "64MiB", "64TiB", "65TiB"},
      {"tier_stop_seconds", "-1", "0", "3600", "3601"},
      {"stripe_bytes", "1048575", "1MiB", "64TiB", "65TiB"},
      {"stripe_grace_seconds", "0", "1", "604800", "604801"},
      {"rdma_ack_timeout", "0", "1", "22", "23"},
  };
  std::set<std::string> ranged;
  for (const Range& range : ranges) {
    ranged.insert(range.name);
    EXPECT_EQ(flag_refusal(range.name, range.lowest), "");
    EXPECT_EQ(flag_refusal(range.name, range.highest), "");
    EXPECT_NE(flag_refusal(range.name, range.below), "") << range.name;
    EXPECT_NE(flag_refusal(range.name, range.above), "") << range.name;
  }
  for (const auto& row : agent_rows()) {
    const ValueKind kind = row.domain.kind;
    if (kind != ValueKind::kSize && kind != ValueKind::kCount) continue;
    EXPECT_TRUE(ranged.contains(std::string(row.name))) << row.name << " has no range above";
  }
}

TEST(OptionsTest, RefusalsNameOptionSourceValueAndAcceptedValues) {
  EXPECT_THAT(flag_refusal("arenas", "65"),
              AllOf(HasSubstr("arenas = '65'"), HasSubstr("flag --arenas"),
                    HasSubstr("a whole number from 1 to 64")));
  EXPECT_THAT(error_of(load("", {}, {"MC_AGENT_POLICY=fifo"})),
              AllOf(HasSubstr("policy = 'fifo'"), HasSubstr("environment MC_AGENT_POLICY"),
                    HasSubstr(std::string(policy_names().front()))));
  EXPECT_THAT(refusal("\npool_bytes = 'many'"),
              AllOf(HasSubstr("agent.toml, line 2"), HasSubstr("1MiB")));
}

TEST(OptionsTest, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal("arenas = 1\npool_byte = 5"),
              AllOf(HasSubstr("'pool_byte'"), HasSubstr("line 2"), HasSubstr("'pool_bytes'")));
  EXPECT_THAT(flag_refusal("pool_byte", "5"),
              AllOf(HasSubstr("'--pool-byte'"), HasSubstr("'--pool-bytes'")));
  EXPECT_THAT(error_of(load("", {}, {"MC_AGENT_SOCKED=x"})),
              AllOf(HasSubstr("'MC_AGENT_SOCKED'"), HasSubstr("'MC_AGENT_SOCKET'")));
  EXPECT_THAT(error_of(load_embedded_options("\npolcy=lru")),
              AllOf(HasSubstr("line 2"), HasSubstr("'policy'")));
  EXPECT_THAT(refusal("[namespaces.default]\nmode = 'direct'"), HasSubstr("[[namespace]]"));
}

TEST(OptionsTest, ForeignVariablesAreIgnored) {
  const auto loaded = load("", {},
                           {"MC_AGENT=/run/mc/agent.sock", "MC_AGENTS=3", "MC_AGENT_PORT=tcp://x",
                            "MC_AGENT_SERVICE_HOST=10.0.0.1", "MC_AGENT_SERVICE_PORT_HTTP=80",
                            "MC_AGENT_PORT_80_TCP=x", "MC_AGENT_ARENAS=", "noequals"});
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(text_of(*loaded, "arenas").source, "default");
}

TEST(OptionsTest, SizesAreReadExactly) {
  const std::pair<const char*, std::uint64_t> good[] = {
      {"0", 0},
      {"4096", 4096},
      {"64KiB", 64 * 1024},
      {"64k", 64 * 1024},
      {"64 KB", 64 * 1024},
      {"1.5G", 3 * kGi / 2},
      {"2TiB", 2 * kTi},
      {"0.0001M", 104},
      {"1P", 1024 * kTi},
      {"12B", 12},
      {" 7 ", 7},
      {"18446744073709551615", std::numeric_limits<std::uint64_t>::max()},
      {"16383.999999999P", 18446744073708425716ull}};
  for (const auto& [text, bytes] : good) {
    const auto parsed = parse_size(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
  for (const char* bad :
       {"", "G", "-1", "+1", "1.5", "1.G", ".5G", "1..5G", "1Gib2", "1X", "1e9", "0x10", "16384P",
        "18446744073709551616", "1.0000000000G", "1 G i B", "nan"}) {
    EXPECT_FALSE(parse_size(bad)) << bad;
  }
}

TEST(OptionsTest, SizesPrintAsTheyWouldBeRead) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kMi, 1536 * kMi, kMi + 1,
                                    std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_EQ(*parse_size(format_size(bytes)), bytes);
  }
  EXPECT_EQ(format_size(1536 * kMi), "1536MiB");
}

TEST(OptionsTest, OctalModesNeedTheirZero) {
  EXPECT_EQ(load("socket_mode = '0660'")->options.socket_mode, 0660u);
  EXPECT_EQ(load("socket_mode = '660'")->options.socket_mode, 0660u);
  EXPECT_EQ(load("socket_mode = 0o660")->options.socket_mode, 0660u);
  EXPECT_EQ(text_of(*load("socket_mode = 0o660"), "socket_mode").value, "0660");
  EXPECT_THAT(refusal("socket_mode = 660"), HasSubstr("\"0660\""));
  for (const char* bad : {"0888", "rw", "", "0o660", "-1", "0060", "7777777777777777777777777"}) {
    EXPECT_NE(flag_refusal("socket_mode", bad), "") << bad;
  }
}

TEST(OptionsTest, UidListsAreReadFromNumbersAndText) {
  EXPECT_THAT(load("allow_uids = [1000, '1001']")->options.allow_uids, ElementsAre(1000, 1001));
  EXPECT_THAT(load("allow_uids = 7")->options.allow_uids, ElementsAre(7));
  EXPECT_THAT(load("", {{"allow_uids", " 1 , 2 "}})->options.allow_uids, ElementsAre(1, 2));
  EXPECT_TRUE(load("allow_uids = []")->options.allow_uids.empty());
  for (const char* bad : {"1,", ",1", "1,,2", "alice", "1 2"}) {
    EXPECT_NE(flag_refusal("allow_uids", bad), "") << bad;
  }
  std::string most = "0";
  for (std::size_t i = 1; i < kMaxUids; ++i) most += ",1";
  EXPECT_EQ(flag_refusal("allow_uids", most), "");
  EXPECT_NE(flag_refusal("allow_uids", most + ",1"), "");
}

TEST(OptionsTest, WordsBecomeTheirMeaning) {
  const auto loaded = load(
      "huge_pages = 'require'\nisolated_allow_same_user = true\nmode = 'isolated'\nlog_level = "
      "'warn'\ndescriptor_store = 'none'");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->options.huge_pages, HugePages::kRequire);
  EXPECT_TRUE(loaded->options.isolated_allow_same_user);
  EXPECT_EQ(loaded->options.mode, "isolated");
  for (const char* name : {"huge_pages", "mode", "log_level", "descriptor_store", "policy",
                           "isolated_allow_same_user"}) {
    EXPECT_NE(flag_refusal(name, "Perhaps"), "") << name;
  }
}

TEST(OptionsTest, PoolsAreBoundedByTheArenas) {
  EXPECT_EQ(refusal("pool_bytes = '2TiB'\narenas = 2"), "");
  EXPECT_THAT(refusal("pool_bytes = '2TiB'"),
              AllOf(HasSubstr("line 1"), HasSubstr("raise arenas")));
  EXPECT_EQ(refusal("pool_bytes = '64TiB'\narenas = 64"), "");
  EXPECT_NE(refusal("max_pool_bytes = '2TiB'"), "");
  EXPECT_THAT(refusal("[[namespace]]\nname = 'a'\npool_bytes = '2TiB'"), HasSubstr("'a'"));
}

TEST(OptionsTest, CapacityAndGrowthFitThePool) {
  EXPECT_THAT(refusal("pool_bytes = '1MiB'\ncapacity_bytes = 1048577"),
              AllOf(HasSubstr("capacity_bytes = 1048577"), HasSubstr("line 2")));
  EXPECT_THAT(refusal("max_pool_bytes = '512MiB'"), HasSubstr("less than pool_bytes = 1GiB"));
  EXPECT_NE(refusal("[[namespace]]\nname = 'a'\npool_bytes = '1MiB'\ncapacity_bytes = '2MiB'"), "");
  EXPECT_EQ(refusal("[[namespace]]\nname = 'a'\ncapacity_bytes = '1GiB'"), "");
  EXPECT_NE(refusal("[[namespace]]\nname = 'a'\ncapacity_bytes = '1025MiB'"), "");
}

TEST(OptionsTest, NamespaceTablesBecomeNamespaces) {
  const auto loaded = load(
      "arenas = 1\n[[namespace]]\nname = 'one'\nmode = 'isolated'\npool_bytes = '2MiB'\n"
      "allow_uids = [5]\n[[namespace]]\nname = 'two-2_b.c'\npolicy = 'lru'\n"
      "reads_without_lease = 'miss'\n");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  const auto& tenants = loaded->options.namespaces;
  ASSERT_EQ(tenants.size(), 2u);
  EXPECT_EQ(tenants[0].name, "one");
  EXPECT_TRUE(tenants[0].isolated);
  EXPECT_EQ(tenants[0].pool_bytes, 2 * kMi);
  EXPECT_THAT(tenants[0].allow_uids, ElementsAre(5));
  EXPECT_EQ(tenants[0].policy, "");
  EXPECT_FALSE(tenants[1].isolated);
  EXPECT_EQ(tenants[1].policy, "lru");
  EXPECT_EQ(loaded->options.reads_without_lease, "serve");
  EXPECT_EQ(tenants[0].reads_without_lease, "");
  EXPECT_EQ(tenants[1].reads_without_lease, "miss");
  EXPECT_EQ(text_of(*loaded, "namespace.one.pool_bytes").value, "2MiB");
  EXPECT_EQ(text_of(*loaded, "namespace.one.pool_bytes").source, "file");
  EXPECT_EQ(text_of(*loaded, "namespace.one.policy").source, "default");
}

TEST(OptionsTest, WrongNamespaceTablesAreRefusedWithTheRemedy) {
  const std::string table = "[[namespace]]\nname = 'a'\n";
  EXPECT_THAT(refusal(table + table), AllOf(HasSubstr("line 3"), HasSubstr("line 1")));
  EXPECT_THAT(refusal("[[namespace]]\nmode = 'direct'"), HasSubstr("has no name"));
  EXPECT_THAT(refusal("[[namespace]]\nname = 'default'"), HasSubstr("always exists"));
  EXPECT_THAT(refusal(table + "modes = 'direct'"),
              AllOf(HasSubstr("'modes'"), HasSubstr("'mode'")));
  EXPECT_THAT(refusal(table + "policy = 'best'"), HasSubstr("lru"));
  EXPECT_THAT(refusal("[namespace]\nname = 'a'"), HasSubstr("[[namespace]]"));
  EXPECT_THAT(refusal("namespace = [1]"), HasSubstr("[[namespace]]"));
  EXPECT_THAT(refusal("namespace = 'a'"), HasSubstr("[[namespace]]"));
  EXPECT_NE(refusal(table + "pool_bytes = 1048575"), "");
}

TEST(OptionsTest, NamespaceNamesAreHeldToTheirAlphabetAndLength) {
  const auto named = [](const std::string& name) {
    return refusal("[[namespace]]\nname = \"" + name + "\"");
  };
  EXPECT_EQ(named(std::string(64, 'n')), "");
  for (const std::string& bad : {std::string(65, 'n'), std::string(), std::string("a b"),
                                 std::string("a/b"), std::string("\\u00fc"), std::string("a\\n")}) {
    EXPECT_NE(named(bad), "") << bad;
  }
}

TEST(OptionsTest, NamespacesAreCounted) {
  std::string toml;
  for (int i = 0; i < 63; ++i) toml += "[[namespace]]\nname = 'n" + std::to_string(i) + "'\n";
  EXPECT_EQ(refusal(toml), "");
  EXPECT_THAT(refusal(toml + "[[namespace]]\nname = 'last'"), HasSubstr("at most 63"));
}

TEST(OptionsTest, SyntaxErrorsGiveFileLineAndColumn) {
  EXPECT_THAT(refusal("arenas = 1\npool_bytes = = 2"),
              HasSubstr("agent.toml, line 2, column 14: not TOML"));
  EXPECT_THAT(refusal("arenas = 1\narenas = 2"), HasSubstr("line 2"));
  for (const char* broken :
       {"arenas = \xff", "arenas = '\xff'", "[[?]]", "[[\x01", "[", "a.", "'", "\"\\u"}) {
    EXPECT_THAT(refusal(broken), HasSubstr("not TOML"));
  }
}

TEST(OptionsTest, LettersBeyondAsciiStandInQuotesAndCommentsOnly) {
  const std::string letter = "\xd2\x98";
  for (const std::string& text :
       {"# " + letter, "runtime_dir = '/" + letter + "'", "runtime_dir = \"/\\\"" + letter + "\"",
        "runtime_dir = \"\"\"/x\"" + letter + "\"\"\"\"\" # " + letter,
        "runtime_dir = '''/x'" + letter + "'''", "\xef\xbb\xbf" + ("arenas = 1 # " + letter)}) {
    EXPECT_EQ(refusal(text), "") << text;
  }
  EXPECT_THAT(refusal("arenas = 1\narenas" + letter + " = 1"),
              HasSubstr("line 2, column 7: not TOML"));
  EXPECT_THAT(refusal(letter), HasSubstr("line 1, column 1: not TOML"));
  EXPECT_THAT(refusal("runtime_dir = '/x'" + letter), HasSubstr("not TOML"));
  EXPECT_THAT(refusal("runtime_dir = \"\"\"/x\"\"\"" + letter), HasSubstr("not TOML"));
}

TEST(OptionsTest, ValuesOfOtherTypesAreRefused) {
  EXPECT_THAT(refusal("pool_bytes = 1.5"), HasSubstr("\"1.5GiB\""));
  EXPECT_NE(refusal("pool_bytes = 2026-01-01"), "");
  EXPECT_NE(refusal("pool_bytes = {a = 1}"), "");
  EXPECT_NE(refusal("pool_bytes = [1]"), "");
  EXPECT_NE(refusal("pool_bytes = -5"), "");
  EXPECT_NE(refusal("allow_uids = [[1]]"), "");
  EXPECT_NE(refusal("allow_uids = [1.0]"), "");
  EXPECT_NE(refusal("runtime_dir = \"/a\\u0000b\""), "");
}

TEST(OptionsTest, ErrorsShowNoControlCharacters) {
  const std::string words = flag_refusal("policy", "a\x1b[31m\n" + std::string(5000, 'x'));
  EXPECT_THAT(words, HasSubstr("\\x1b"));
  EXPECT_LT(words.size(), 400u);
}

// Letters at the edges of toml++'s tables of letters and white space, and some in the middle.
const std::string kLetters[] = {"\u00a0", "\u00e9", "\u0499", "\u1680", "\u180e", "\u2000",
                                "\u200b", "\u2028", "\u202f", "\u205f", "\u2fff", "\u3000",
                                "\u3001", "\u4e2d", "\ufefe", "\ufeff", "\uff00", "\U0001f600"};

TEST(OptionsTest, LettersOfAllScriptsAreKeptInTextsAndComments) {
  for (const std::string& letter : kLetters) {
    const std::string dir = "/mc" + letter + "x" + letter;
    for (const char quote : {'\'', '"'}) {
      const auto loaded = load("# " + letter + "\nruntime_dir = " + quote + dir + quote + "  #" +
                               letter + letter + "\nspin_us = 7\n");
      ASSERT_TRUE(loaded) << dir << ": " << loaded.error().to_string();
      EXPECT_EQ(loaded->options.runtime_dir, dir);
      EXPECT_EQ(loaded->options.spin_us, 7u);
    }
  }
}

TEST(OptionsTest, LettersOutsideOfTextsAreRefusedWhereTheyStand) {
  for (const std::string& letter : kLetters) {
    for (const std::string& wrong :
         {"spin_us = " + letter, "spin_us = 7" + letter, "spin_us = 7 " + letter,
          letter + "spin_us = 7", "spin" + letter + "_us = 7", "spin_us " + letter + "= 7",
          "[" + letter + "]", "[[namespace]]" + letter, "spin_us = 1" + letter + "2",
          "allow_uids = [1," + letter + "2]", "runtime_dir = \"/mc\\" + letter + "\""}) {
      EXPECT_THAT(refusal("arenas = 1\n" + wrong + "\n"), HasSubstr("agent.toml, line 2")) << wrong;
    }
    EXPECT_THAT(refusal("runtime_dir = \"/mc\\" + letter + "\"\n"), HasSubstr("not TOML"));
    EXPECT_THAT(refusal("spin_us = 7" + letter + "7\n"), HasSubstr("agent.toml, line 1"));
  }
}

TEST(OptionsTest, FilesAreReadFromDisk) {
  const std::string path = ::testing::TempDir() + "mc-options-" + std::to_string(::getpid());
  std::ofstream(path) << "arenas = 3\n";
  EXPECT_EQ(load_options(path, {}, nullptr)->options.arenas, 3u);
  std::ofstream(path) << std::string(kMaxConfigBytes, ' ');
  EXPECT_TRUE(load_options(path, {}, nullptr));
  std::ofstream(path) << std::string(kMaxConfigBytes + 1, ' ');
  EXPECT_THAT(error_of(load_options(path, {}, nullptr)), HasSubstr("longer than 1MiB"));
  ::unlink(path.c_str());
  EXPECT_THAT(error_of(load_options(path, {}, nullptr)), HasSubstr("No such file"));
  EXPECT_THAT(error_of(load_options("/", {}, nullptr)), HasSubstr("directory"));
}

// The folder that a relative path of a flag starts at.
std::string here(const std::string& rest = {}) {
  const std::string folder = std::filesystem::current_path();
  return rest.empty() ? folder : folder + "/" + rest;
}

TEST(OptionsTest, RelativePathsOfFlagsAndVariablesStartAtTheWorkingDirectory) {
  const std::pair<const char*, std::string> paths[] = {{"keys/a.key", here("keys/a.key")},
                                                       {"./a.key", here("a.key")},
                                                       {".//./a.key", here("a.key")},
                                                       {"../a.key", here("../a.key")},
                                                       {".", here()},
                                                       {"./", here()},
                                                       {"/a/./b.key", "/a/./b.key"},
                                                       {"", ""}};
  for (const auto& [given, meant] : paths) {
    const auto flag = load("", {{"cluster_key_file", given}});
    ASSERT_TRUE(flag) << flag.error().to_string();
    EXPECT_EQ(flag->options.cluster_key_file, meant) << given;
    const auto variable = load("", {}, {"MC_AGENT_CLUSTER_KEY_FILE=" + std::string(given)});
    ASSERT_TRUE(variable) << variable.error().to_string();
    EXPECT_EQ(variable->options.cluster_key_file, meant) << given;
  }
}

TEST(OptionsTest, EveryPathOptionTakesARelativePath) {
  for (const auto& row : agent_rows()) {
    if (row.domain.kind != ValueKind::kPath) continue;
    const auto loaded = load("", {{std::string(row.name), "p"}});
    // A deep working directory makes the path of a socket too long.
    if (loaded) {
      EXPECT_EQ(text_of(*loaded, row.name).value, here("p"));
    } else {
      EXPECT_GT(here("p").size(), row.domain.highest) << loaded.error().to_string();
    }
  }
}

TEST(OptionsTest, RelativePathsOfAFileStartAtTheFolderOfTheFile) {
  const auto loaded =
      load_options_text("runtime_dir = 'run'\nsocket = '../s.sock'\ncluster_key_file = './k'\n",
                        "/etc/mc/agent.toml", {}, nullptr);
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->options.runtime_dir, "/etc/mc/run");
  EXPECT_EQ(loaded->options.socket, "/etc/mc/../s.sock");
  EXPECT_EQ(loaded->options.cluster_key_file, "/etc/mc/k");
  const auto root = load_options_text("runtime_dir = 'run'", "/agent.toml", {}, nullptr);
  EXPECT_EQ(root->options.runtime_dir, "/run");
  const auto beside = load_options_text("cluster_key_file = 'k'", "etc/agent.toml", {}, nullptr);
  EXPECT_EQ(beside->options.cluster_key_file, here("etc/k"));
}

TEST(OptionsTest, TheLimitOfAPathHoldsForTheAbsoluteForm) {
  const std::string name = "/" + std::string(40, 'f') + "/agent.toml";  // folder: 41 bytes
  const auto said = [&](std::size_t bytes) {
    return error_of(
        load_options_text("runtime_dir = '" + std::string(bytes, 'd') + "'", name, {}, nullptr));
  };
  EXPECT_EQ(said(95 - 42), "");
  EXPECT_THAT(said(95 - 41), HasSubstr("a path whose absolute form has at most 95 bytes"));
}

TEST(OptionsTest, LogLevelsAreTheSameWordsInAllPrograms) {
  for (const std::string level : {"trace", "debug", "info", "warn", "error", "off"}) {
    EXPECT_EQ(load("", {{"log_level", level}})->options.log_level, level);
  }
  for (const std::string earlier : {"err", "critical"}) {
    EXPECT_EQ(load("", {{"log_level", earlier}})->options.log_level, "error");
  }
  EXPECT_THAT(flag_refusal("log_level", "fatal"),
              HasSubstr("not one of trace, debug, info, warn, error, off"));
}

struct Renamed {
  std::string store;
  std::uint64_t count = 0;
};

const Rows<Renamed>& renamed_rows() {
  static const Rows<Renamed> rows = {
      row_of<&Renamed::store, Renamed>("cluster_store", {ValueKind::kText, 0, 99, true, {}}, "",
                                       "store"),
      row_of<&Renamed::count, Renamed>("partitions", {ValueKind::kCount, 1, 9, false, {}}, "",
                                       "shares")};
  return rows;
}

FileTable file_with(const std::vector<std::pair<std::string, std::string>>& entries) {
  FileTable table;
  for (const auto& [name, text] : entries) {
    table.entries.push_back({name, text, "", false, "line " + std::to_string(entries.size())});
  }
  return table;
}

TEST(OptionAlias, AnEarlierNameWorksInEverySource) {
  OptionLoader<Renamed> loader(renamed_rows(), "MC_");
  ASSERT_TRUE(loader.add_table(file_with({{"store", "file"}})).ok());
  EXPECT_EQ(loader.values().store, "file");
  ASSERT_TRUE(loader.add_environment(Environment({"MC_STORE=variable"}).get()).ok());
  EXPECT_EQ(loader.values().store, "variable");
  ASSERT_TRUE(loader.add_flags({{"store", "flag"}}).ok());
  EXPECT_EQ(loader.values().store, "flag");
  EXPECT_EQ(loader.origin_of("cluster_store").where, "flag --store");
}

TEST(OptionAlias, APresentNameOfALaterSourceReplacesAnEarlierName) {
  OptionLoader<Renamed> loader(renamed_rows(), "MC_");
  ASSERT_TRUE(loader.add_table(file_with({{"store", "file"}})).ok());
  ASSERT_TRUE(loader.add_flags({{"cluster_store", "flag"}}).ok());
  EXPECT_EQ(loader.values().store, "flag");
}

TEST(OptionAlias, BothNamesInOneSourceAreRefused) {
  OptionLoader<Renamed> loader(renamed_rows(), "MC_");
  const Status status = loader.add_table(file_with({{"cluster_store", "a"}, {"store", "b"}}));
  EXPECT_EQ(status.code(), MC_INVALID_ARGUMENT);
  EXPECT_THAT(std::string(status.text()),
              AllOf(HasSubstr("store is an earlier name of cluster_store"), HasSubstr("line 2"),
                    HasSubstr("remove store")));
}

TEST(OptionAlias, RefusalsNameThePresentName) {
  OptionLoader<Renamed> loader(renamed_rows(), "MC_");
  EXPECT_THAT(std::string(loader.add_flags({{"shares", "10"}}).text()),
              HasSubstr("partitions = '10' (flag --shares)"));
  EXPECT_THAT(std::string(loader.add_flags({{"stroe", "x"}}).text()),
              HasSubstr("did you mean '--cluster-store'"));
  EXPECT_THAT(std::string(loader.add_environment(Environment({"MC_SHARE=3"}).get()).text()),
              HasSubstr("did you mean 'MC_PARTITIONS'"));
}

TEST(OptionsTest, EmbeddedLinesTakeBlanksAndComments) {
  const auto loaded = load_embedded_options("# small\n\n pool_bytes = 16MiB \r\narenas=2");
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  EXPECT_EQ(loaded->options.pool_bytes, 16 * kMi);
  EXPECT_EQ(loaded->options.arenas, 2u);
  EXPECT_EQ(text_of(*loaded, "arenas").source, "embedded");
  EXPECT_THAT(error_of(load_embedded_options("arenas 2")), HasSubstr("name=value"));
  EXPECT_NE(error_of(load_embedded_options(std::string(65537, '\n'))), "");
  EXPECT_EQ(error_of(load_embedded_options(std::string(65536, '\n'))), "");
}

TEST(OptionsTest, TheTableDescribesEveryOptionAndItsRange) {
  const auto table = option_table();
  ASSERT_EQ(table.size(), agent_rows().size());
  for (const auto& text : table) {
    EXPECT_FALSE(text.help.empty()) << text.name;
    static const std::set<std::string> kNone{
        "allow_uids",  "cluster_store", "masters",       "master_listen",   "cluster_key_file",
        "advertise",   "zone",          "rdma_devices",  "peer_tls_cert",   "peer_tls_key",
        "peer_tls_ca", "peer_tls_name", "master_tls_ca", "master_tls_name", "http_token_file",
        "tier_paths"};
    EXPECT_EQ(text.default_value.empty(), kNone.contains(text.name)) << text.name;
  }
}

TEST(NearestName, MistypedWordFindsTheOneMeant) {
  const std::vector<std::string> verbs{"status", "stat", "segment", "doctor", "get"};
  EXPECT_EQ(nearest("stauts", verbs), "status");
  EXPECT_EQ(nearest("sgement", verbs), "segment");
  EXPECT_EQ(nearest("doc", verbs), "doctor");
  EXPECT_EQ(nearest("gett", verbs), "get");
}

TEST(NearestName, WordThatResemblesNothingFindsNothing) {
  EXPECT_EQ(nearest("xyzzy", {"status", "get"}), "");
  EXPECT_EQ(nearest("", {"status"}), "");
  EXPECT_EQ(nearest(std::string(100, 's'), {"status"}), "");
}

TEST(NearestName, SwappedNeighboursAreOneEdit) {
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

}  // namespace
}  // namespace mc::agent
