// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "ctl/text/command_tree.h"
#include "ctl/text/help.h"
#include "ctl/verbs/completion.h"

namespace mc::ctl {
namespace {

// A small program with all features that a completion must know: choices, nested verbs, global
// options.
struct Program {
  CLI::App app{"Do things\n\nA longer text.", "tool"};
  std::string agent;
  std::string pin;
  std::string key;
  std::string shell;
  bool json = false;

  Program() {
    app.formatter(std::make_shared<ManualFormatter>());
    app.add_option("--agent", agent, "Whose socket")->type_name("SOCKET");
    app.add_flag("--json", json, "Print JSON");
    CLI::App* put = app.add_subcommand("put", "Store an object\n\nIn the pool.");
    put->add_option("KEY", key, "The key")->required();
    put->add_option("--pin", pin, "Keep it")
        ->check(CLI::IsMember({"soft", "hard"}))
        ->type_name("KIND");
    put->footer("EXAMPLES\n  tool put k");
    CLI::App* segment = app.add_subcommand("segment", "The pool's memory");
    segment->require_subcommand(1);
    segment->add_subcommand("list", "List them");
    segment->add_subcommand("resize", "Change the user's size");
    CLI::App* completion = app.add_subcommand("completion", "Print a script");
    completion->add_option("SHELL", shell, "Which")->check(CLI::IsMember({"bash", "zsh"}));
    for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) verb->fallthrough();
    app.require_subcommand(0, 1);
  }

  Failure parse_failure(const std::string& line) {
    try {
      app.parse(line);
    } catch (const CLI::ParseError& error) {
      return explain_parse_error(app, error);
    }
    return {"", ""};
  }
};

// Bash's offers for the last of the words.
std::string offered(const std::vector<std::string>& words) {
  const Program program;
  const std::string path = testing::TempDir() + "mcctl-completion." + std::to_string(getpid());
  std::ofstream(path) << bash_completion(program.app);
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

TEST(CtlCompletion, TreeHoldsVerbsOptionsAndChoices) {
  const Program program;
  const std::vector<Command> tree = command_tree(program.app);
  ASSERT_EQ(tree.size(), 6u);
  EXPECT_EQ(tree[0].verbs, (std::vector<std::string>{"put", "segment", "completion"}));
  EXPECT_EQ(tree[1].path, "put");
  EXPECT_EQ(tree[1].help, "Store an object");
  EXPECT_EQ(tree[3].path, "segment list");
  EXPECT_EQ(tree[5].choices, (std::vector<std::string>{"bash", "zsh"}));
  const CommandOption& pin = tree[1].options.back();
  EXPECT_EQ(pin.names, (std::vector<std::string>{"--pin"}));
  EXPECT_TRUE(pin.takes_value);
  EXPECT_EQ(pin.choices, (std::vector<std::string>{"soft", "hard"}));
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
  const std::string zsh = zsh_completion(program.app);
  EXPECT_TRUE(zsh.starts_with("#compdef tool\n"));
  EXPECT_NE(zsh.find("'resize:Change the user'\\''s size'"), std::string::npos);
  const std::string fish = fish_completion(program.app);
  EXPECT_NE(fish.find("complete -c tool -n '__tool_at \"/segment\"' -f -a resize -d "
                      "'Change the user\\'s size'"),
            std::string::npos);
  EXPECT_NE(fish.find("-l pin -x -a 'soft hard'"), std::string::npos);
}

TEST(CtlHelp, PageHasTheSectionsOfAManualPage) {
  Program program;
  const std::string page = program.app.get_subcommand("put")->help("tool");
  for (const char* part :
       {"NAME\n  tool put - store an object\n", "SYNOPSIS\n  tool put [OPTION]... KEY\n",
        "DESCRIPTION\n  In the pool.\n", "OPTIONS\n  KEY\n", "--pin KIND:{soft,hard}",
        "GLOBAL OPTIONS\n  --agent SOCKET\n", "EXAMPLES\n  tool put k\n"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\nis not in\n" << page;
  }
}

TEST(CtlHelp, MistypedVerbIsAnsweredWithTheNearest) {
  const Failure failure = Program().parse_failure("putt k");
  EXPECT_EQ(failure.cause, "there is no verb 'putt'");
  EXPECT_EQ(failure.remedy, "tool put");
}

TEST(CtlHelp, MistypedVerbBelowAVerbIsAnsweredToo) {
  const Failure failure = Program().parse_failure("segment resiz");
  EXPECT_EQ(failure.cause, "there is no verb 'resiz'");
  EXPECT_EQ(failure.remedy, "tool segment resize");
}

TEST(CtlHelp, MistypedOptionIsAnsweredWithTheNearestOfVerbOrProgram) {
  EXPECT_EQ(Program().parse_failure("put k --pni soft").remedy, "--pin");
  EXPECT_EQ(Program().parse_failure("put k --jsn").remedy, "--json");
}

TEST(CtlHelp, MissingArgumentIsNamed) {
  EXPECT_NE(Program().parse_failure("put").cause.find("KEY"), std::string::npos);
}

TEST(CtlHelp, KeyThatReadsLikeAVerbIsAKey) {
  Program program;
  EXPECT_EQ(program.parse_failure("put segment --json").cause, "");
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
