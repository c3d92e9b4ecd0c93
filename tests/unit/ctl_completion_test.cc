// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "ctl/command.h"
#include "ctl/text/failure.h"
#include "ctl/text/help.h"
#include "libmc/options/manual_page.h"

namespace mc::ctl {
namespace {

// A small program with all features that completion must handle: choices, nested verbs, global
// options, flags, numbers and options that exclude each other.
struct Program {
  Context context;
  std::string agent;
  std::string pin;
  std::string key;
  std::string shell;
  std::vector<std::string> sizes;
  unsigned count = 5;
  bool json = false;
  bool all = false;
  Verb verb{
      .name = "tool",
      .text = "Do things\n\nA longer text.",
      .options = {{"--agent", &agent, "The socket", "SOCKET"},
                  {"--json", &json, "Print JSON"},
                  {.name = "--version", .help = "Print the version"},
                  {.name = "-h,--help", .help = "Print this text"}},
      .verbs = {
          {.name = "put",
           .text = "Store an object\n\nIn the pool.",
           .footer = "EXAMPLES\n  tool put k",
           .options = {{.name = "KEY", .value = &key, .help = "The key", .required = true},
                       {.name = "--count",
                        .value = &count,
                        .help = "How many",
                        .type = "COUNT",
                        .range = {{1, 9}},
                        .earlier_name = "--number"},
                       {"--sizes", &sizes, "The sizes"},
                       {.name = "-a,--all", .value = &all, .help = "All", .excludes = {"--count"}},
                       {.name = "--pin",
                        .value = &pin,
                        .help = "Keep the object",
                        .choices = {"soft", "hard"}}},
           .run = [] {}},
          {.name = "segment",
           .text = "The pool's memory",
           .verbs = {{.name = "list", .text = "List them", .run = [] {}},
                     {.name = "resize", .text = "Change the user's size", .run = [] {}}}},
          {.name = "completion",
           .text = "Print a script",
           .options = {{.name = "SHELL",
                        .value = &shell,
                        .help = "The shell",
                        .choices = {"bash", "zsh"}}},
           .run = [] {}},
      }};

  // The standard error of the program for this command line.
  std::string run(const std::vector<std::string>& words) {
    testing::internal::CaptureStderr();
    exit_code = run_command_line(verb, context, words);
    return testing::internal::GetCapturedStderr();
  }
  std::string page(const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    exit_code = run_command_line(verb, context, words);
    return testing::internal::GetCapturedStdout();
  }
  int exit_code = -1;
};

// Bash's offers for the last of the words.
std::string offered(const std::vector<std::string>& words) {
  const Program program;
  const std::string path = testing::TempDir() + "mcctl-completion." + std::to_string(getpid());
  std::ofstream(path) << bash_completion(program.verb);
  std::string command = "bash -c 'source " + path + "; COMP_WORDS=(tool";
  for (const std::string& word : words) command += " \"" + word + "\"";
  command += "); COMP_CWORD=" + std::to_string(words.size()) + "; _tool; echo \"${COMPREPLY[@]}\"'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 4096> line{};
  const std::size_t size = fread(line.data(), 1, line.size() - 1, pipe.get());
  std::string out(line.data(), size);
  unlink(path.c_str());
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

TEST(CtlCompletion, BashOffersVerbsAtEveryDepth) {
  EXPECT_EQ(offered({"pu"}), "put");
  EXPECT_EQ(offered({"--json", "seg"}), "segment");
  EXPECT_EQ(offered({"segment", "re"}), "resize");
}

TEST(CtlCompletion, BashOffersOptionsOfTheVerbAndOfTheProgram) {
  EXPECT_EQ(offered({"put", "--p"}), "--pin");
  EXPECT_EQ(offered({"put", "--j"}), "--json");
  EXPECT_EQ(offered({"segment", "list", "--p"}), "");
}

TEST(CtlCompletion, BashOffersTheFixedValuesOfAnOptionAndLeavesOthersToFiles) {
  EXPECT_EQ(offered({"put", "--pin", ""}), "soft hard");
  EXPECT_EQ(offered({"put", "--agent", "p"}), "");
  EXPECT_EQ(offered({"completion", "z"}), "zsh");
}

TEST(CtlCompletion, ZshAndFishScriptsNameEveryVerb) {
  const Program program;
  const std::string zsh = zsh_completion(program.verb);
  EXPECT_TRUE(zsh.starts_with("#compdef tool\n"));
  EXPECT_NE(zsh.find("'resize:Change the user'\\''s size'"), std::string::npos);
  const std::string fish = fish_completion(program.verb);
  EXPECT_NE(fish.find("complete -c tool -n '__tool_at \"/segment\"' -f -a resize -d "
                      "'Change the user\\'s size'"),
            std::string::npos);
  EXPECT_NE(fish.find("-l pin -x -a 'soft hard'"), std::string::npos);
}

TEST(CtlHelp, PageHasTheSectionsOfAManualPage) {
  Program program;
  const std::string page = program.page({"put", "--count", "7", "--help"});
  EXPECT_EQ(program.exit_code, kExitOk);
  for (const char* part :
       {"NAME\n  tool put - store an object\n", "SYNOPSIS\n  tool put [OPTION]... KEY\n",
        "DESCRIPTION\n  In the pool.\n", "OPTIONS\n  KEY\n", "--pin {soft,hard}",
        "  --count COUNT\n        How many (1 to 9; default: 5)\n", "  -a, --all\n",
        "GLOBAL OPTIONS\n  --agent SOCKET\n", "EXAMPLES\n  tool put k\n"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\nis not in\n" << page;
  }
  EXPECT_EQ(Program().page({"help", "put"}), Program().page({"put", "-h"}));
}

TEST(CtlHelp, MistypedVerbIsAnsweredWithTheNearest) {
  Program program;
  EXPECT_EQ(program.run({"putt", "k"}), "mcctl: there is no verb 'putt'\n  try: tool put\n");
  EXPECT_EQ(program.exit_code, kExitUsage);
}

TEST(CtlHelp, MistypedVerbBelowAVerbIsAnsweredToo) {
  EXPECT_EQ(Program().run({"segment", "resiz"}),
            "mcctl: segment: there is no verb 'resiz'\n  try: tool segment resize\n");
}

TEST(CtlHelp, UnknownVerbBesideHelpIsAnsweredWithTheNearest) {
  const std::pair<std::vector<std::string>, std::string> lines[] = {
      {{"putt", "--help"}, "mcctl: there is no verb 'putt'\n  try: tool put\n"},
      {{"help", "putt"}, "mcctl: there is no verb 'putt'\n  try: tool put\n"},
      {{"help", "xyzzy"}, "mcctl: there is no verb 'xyzzy'\n  try: tool --help\n"},
      {{"segment", "resiz", "-h"},
       "mcctl: segment: there is no verb 'resiz'\n  try: tool segment resize\n"},
      {{"help", "segment", "xyzzy"},
       "mcctl: segment: there is no verb 'xyzzy'\n  try: tool segment --help\n"}};
  for (const auto& [words, answer] : lines) {
    Program program;
    EXPECT_EQ(program.run(words), answer);
    EXPECT_EQ(program.exit_code, kExitUsage) << answer;
  }
}

TEST(CtlHelp, EarlierNameOfAnOptionWorksAndIsNotShown) {
  Program program;
  EXPECT_EQ(program.run({"put", "k", "--number", "7"}), "");
  EXPECT_EQ(program.count, 7u);
  EXPECT_EQ(Program().page({"put", "--help"}).find("--number"), std::string::npos);
  EXPECT_EQ(bash_completion(program.verb).find("--number"), std::string::npos);
  EXPECT_NE(Program().run({"put", "k", "--number", "0"}).find("put: --count: 0"),
            std::string::npos);
}

TEST(CtlManual, PageHasTheTextsOfTheHelp) {
  const Program program;
  const Verb& put = program.verb.verbs[0];
  EXPECT_EQ(manual_name({&program.verb, &put}), "tool-put");
  const std::string page = manual_source({&program.verb, &put});
  for (const char* part :
       {".TH TOOL\\-PUT 1 ", ".SH NAME\ntool\\-put \\- store an object\n",
        ".SH SYNOPSIS\n\\fBtool put\\fR\n[OPTION]... KEY\n", ".SH DESCRIPTION\nIn the pool.\n",
        ".SH OPTIONS\n.TP\n\\fBKEY\\fR\nThe key\n", ".TP\n\\fB\\-a, \\-\\-all\\fR\nAll\n",
        "\\fB\\-\\-pin\\fR \\fI{soft,\\:hard}\\fR\n", ".SH GLOBAL OPTIONS\n",
        ".SH EXAMPLES\n.nf\ntool put k\n.fi\n",
        ".SH SEE ALSO\n.BR tool (1),\n.BR mc\\-agent (8)\n"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\nis not in\n" << page;
  }
  EXPECT_NE(manual_source({&program.verb}).find(".BR tool\\-segment (1),\n"), std::string::npos);
}

TEST(CtlManual, TextsAreNoRequestsAndCommandsCanBeCopied) {
  options::ManualPage page("x", "1", "a page", "1");
  page.heading("DESCRIPTION");
  page.paragraphs(".so /etc/passwd\n\n'br a\\b ~/`c` d-e\n\n  'quoted'\n  .hidden");
  page.sections(
      "ENVIRONMENT\n  NAME   first\n         second\n  OTHER  third\n\nEXIT STATUS\n  0 well");
  for (const char* part :
       {"\n\\&.so /etc/passwd\n.PP\n\\&'br a\\eb \\(ti/\\(gac\\(ga d\\-e\n.PP\n.nf\n",
        "\n  \\(aqquoted\\(aq\n  .hidden\n.fi\n",
        ".SH ENVIRONMENT\n.TP\n\\fBNAME\\fR\nfirst second\n.TP\n\\fBOTHER\\fR\nthird\n",
        ".SH EXIT STATUS\n0 well\n"}) {
    EXPECT_NE(page.text().find(part), std::string::npos) << part << "\nis not in\n" << page.text();
  }
}

TEST(CtlManual, DateOfThePageIsTheDateOfTheSource) {
  ASSERT_EQ(::setenv("SOURCE_DATE_EPOCH", "86400", 1), 0);
  const std::string text = options::ManualPage("x", "1", "a page", "1").text();
  ASSERT_EQ(::unsetenv("SOURCE_DATE_EPOCH"), 0);
  EXPECT_TRUE(text.starts_with(".TH X 1 1970-01-02 \"mc 1\"\n")) << text;
}

TEST(CtlHelp, MissingVerbIsNamed) {
  EXPECT_EQ(Program().run({}), "mcctl: a verb is missing\n  try: tool --help\n");
  EXPECT_EQ(Program().run({"segment"}),
            "mcctl: segment: a verb is missing\n  try: tool segment --help\n");
}

TEST(CtlHelp, MistypedOptionIsAnsweredWithTheNearestOfVerbOrProgram) {
  EXPECT_NE(Program().run({"put", "k", "--pni", "soft"}).find("try: --pin"), std::string::npos);
  EXPECT_NE(Program().run({"put", "k", "--jsn"}).find("try: --json"), std::string::npos);
}

TEST(CtlHelp, MissingArgumentIsNamed) {
  EXPECT_EQ(Program().run({"put"}), "mcctl: put: KEY is required\n  try: tool put --help\n");
  EXPECT_EQ(Program().run({"put", "k", "--pin"}),
            "mcctl: put: --pin needs a value\n  try: tool put --help\n");
}

TEST(CtlHelp, ValueThatIsNotAllowedIsAnsweredWithTheAllowedOnes) {
  const auto answer = [](const std::string& option, const std::string& value) {
    const std::string text = Program().run({"put", "k", option, value});
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(answer("--pin", "x"), "mcctl: put: --pin: x is not one of soft, hard");
  for (const std::string value : {"0", "10", "-1", "x", "1x", "99999999999"}) {
    EXPECT_EQ(answer("--count", value),
              "mcctl: put: --count: " + value + " is not a whole number from 1 to 9");
  }
  EXPECT_EQ(answer("--count", "9"), "");
}

TEST(CtlHelp, OptionsThatExcludeEachOtherAreRefused) {
  EXPECT_NE(Program().run({"put", "k", "--all", "--count", "2"}).find("excludes"),
            std::string::npos);
}

TEST(CtlHelp, ListOptionTakesOneWordAndSplitsItAtCommas) {
  Program program;
  EXPECT_EQ(program.run({"put", "--sizes", "1,2", "k"}), "");
  EXPECT_EQ(program.sizes, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(program.key, "k");
}

TEST(CtlHelp, KeyThatReadsLikeAVerbIsAKey) {
  Program program;
  EXPECT_EQ(program.run({"put", "segment", "--json"}), "");
  EXPECT_EQ(program.key, "segment");
  EXPECT_TRUE(program.json);
}

TEST(CtlFailure, TextOfTheLibraryIsSplitAtItsRemedy) {
  const Failure failure = explain(MC_AGENT_UNAVAILABLE, "connect to /x: refused; start mc-agent");
  EXPECT_EQ(failure.cause, "connect to /x: refused");
  EXPECT_EQ(failure.remedy, "start mc-agent");
}

TEST(CtlFailure, TextWithoutARemedyGetsThatOfItsStatus) {
  EXPECT_EQ(explain(MC_NOT_FOUND, "no object has this key").cause, "no object has this key");
  EXPECT_FALSE(explain(MC_NOT_FOUND, "no object has this key").remedy.empty());
  EXPECT_FALSE(explain(MC_BUSY, "").cause.empty());
}

}  // namespace
}  // namespace mc::ctl
