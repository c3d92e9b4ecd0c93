// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ctl/text/agent_view.h"
#include "ctl/text/json.h"
#include "ctl/text/progress.h"
#include "ctl/text/table.h"
#include "libmc/base/key_text.h"

namespace mc::ctl {
namespace {

TEST(CtlTable, NumbersStandRightAndWordsLeftWithoutTrailingSpaces) {
  Table table({"NAME", "SIZE", "NOTE"});
  table.add_row({"a", "7 B", "x"});
  table.add_row({"longer", "1,000 B", ""});
  table.add_row({"none", "-", "z"});
  EXPECT_EQ(table.to_string(),
            "NAME       SIZE  NOTE\n"
            "a           7 B  x\n"
            "longer  1,000 B\n"
            "none          -  z\n");
}

TEST(CtlTable, ColumnOfNumbersAndWordsStandsLeft) {
  Table table({"VALUE"});
  table.add_row({"12"});
  table.add_row({"lru"});
  EXPECT_EQ(table.to_string(), "VALUE\n12\nlru\n");
}

TEST(CtlTable, ShortRowsAreFilledAndLongOnesCut) {
  Table table({"A", "B"});
  table.add_row({"x"});
  table.add_row({"x", "y", "z"});
  EXPECT_EQ(table.to_string(), "A  B\nx\nx  y\n");
}

TEST(CtlTable, LettersBeyondAsciiCountAsOneColumn) {
  Table table({"K", "V"});
  table.add_row({"größe", "a"});
  table.add_row({"klein", "b"});
  EXPECT_EQ(table.to_string(), "K      V\ngröße  a\nklein  b\n");
}

TEST(CtlTable, ControlCharactersOfAForeignLabelDoNotReachTheTerminal) {
  Table table({"LABEL"});
  table.add_row({"\x1b[2Jevil\n"});
  EXPECT_EQ(table.to_string(), "LABEL\n?[2Jevil?\n");
}

TEST(CtlTable, TextIsPrintableIfItIsUtf8WithoutControlCharacters) {
  EXPECT_EQ(printable("größe 漢字 \U0001f600 \ufffd"), "größe 漢字 \U0001f600 \ufffd");
  EXPECT_EQ(printable("\x7f\t"), "??");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "?2J")
      << "a control sequence in one character";
  EXPECT_EQ(printable("\xff"
                      "a\xc3"),
            "?a?")
      << "bytes that begin no character";
  EXPECT_EQ(printable("\xc0\xaf"), "??") << "too long a form";
  EXPECT_EQ(printable("\xe0\x80\xaf"), "???") << "too long a form";
  EXPECT_EQ(printable("\xf0\x80\x80\xaf"), "????") << "too long a form";
  EXPECT_EQ(printable("\xed\xa0\x80"), "???") << "half of a pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80\xf5"), "?????") << "beyond the last character";
  EXPECT_EQ(printable("\xe2\x82"), "??") << "a cut character";
}

TEST(CtlTable, ACutTextHasWholeCharacters) {
  EXPECT_EQ(cut_to_width("größe", 3), "grö");
  EXPECT_EQ(cut_to_width("größe", 5), "größe");
  EXPECT_EQ(cut_to_width("größe", 9), "größe");
  EXPECT_EQ(cut_to_width("größe", 0), "");
}

TEST(CtlKeyText, PrintableKeysStayAsTheyAre) { EXPECT_EQ(escape_key("a/b c~"), "a/b c~"); }

TEST(CtlKeyText, OtherBytesAndPercentAreEscaped) {
  EXPECT_EQ(escape_key(std::string("\0\x1f%\x7f\xff", 5)), "%00%1F%25%7F%FF");
}

TEST(CtlKeyText, EveryByteComesBack) {
  std::string key;
  for (int byte = 0; byte < 256; ++byte) key += static_cast<char>(byte);
  EXPECT_EQ(unescape_key(escape_key(key)), key);
}

TEST(CtlKeyText, BrokenEscapesAreRefused) {
  for (const char* text : {"%", "a%1", "%g0", "%0g", "%%"})
    EXPECT_FALSE(unescape_key(text)) << text;
  EXPECT_EQ(unescape_key("%2f%2F"), "//");
}

TEST(CtlProgress, LineShowsTitleBarShareAndNote) {
  EXPECT_EQ(progress_line("resizing", 1, 2, "1 of 2", 80),
            "resizing [############............]  50%  1 of 2");
  EXPECT_EQ(progress_line("reading", 5, 0, "5 objects", 80), "reading  5 objects");
}

TEST(CtlProgress, DoneBeyondTheTotalIsAWholeBar) {
  EXPECT_EQ(progress_line("x", 9, 2, "", 80), "x [########################] 100%");
}

TEST(CtlProgress, LineIsCutAtWholeLetters) {
  EXPECT_EQ(progress_line("größe", 0, 0, "", 4), "größ");
  EXPECT_EQ(progress_line("größe", 0, 0, "", 3), "grö");
}

TEST(CtlJson, FieldsOfAnotherTypeReadAsNothing) {
  Json::Value object;
  object["text"] = "x";
  object["negative"] = -1;
  object["fraction"] = 2.5;
  EXPECT_EQ(number_field(object, "text"), 0u);
  EXPECT_EQ(number_field(object, "negative"), 0u);
  EXPECT_EQ(number_field(object, "fraction"), 2u);
  EXPECT_EQ(number_field(Json::Value("no object"), "x"), 0u);
  EXPECT_EQ(text_field(object, "missing"), "");
  EXPECT_FALSE(flag_field(object, "text"));
  EXPECT_TRUE(array_field(object, "text").empty());
}

TEST(CtlStatusView, StatusWithoutAnyFieldIsStillShown) {
  const std::string text = status_text(Json::Value(), Json::Value(), 0);
  EXPECT_NE(text.find("not ready yet"), std::string::npos);
  EXPECT_NE(text.find("no sessions"), std::string::npos);
}

TEST(CtlStatusView, RatesComeFromTheAnswerBefore) {
  Json::Value before;
  before["namespaces"][0]["name"] = "default";
  before["namespaces"][0]["puts"] = 100;
  Json::Value now = before;
  now["namespaces"][0]["puts"] = 2100;
  EXPECT_NE(status_text(now, before, 2.0).find(" 1,000"), std::string::npos);
}

TEST(CtlStatusView, CountersOfNestedObjectsAreNamedWithDots) {
  Json::Value counters;
  counters["pool"]["used_bytes"] = 5;
  counters["lanes"][0] = 7;
  EXPECT_EQ(counters_text(counters),
            "COUNTER          VALUE\nlanes[0]             7\npool.used_bytes      5\n");
}

}  // namespace
}  // namespace mc::ctl
