// SPDX-License-Identifier: Apache-2.0
#include "metadata/directory/key_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace mc::metadata {
namespace {

bool matches(std::string_view expression, std::string_view key) {
  const auto pattern = KeyPattern::compile(expression);
  EXPECT_TRUE(pattern) << expression;
  return pattern && pattern->matches(key);
}

TEST(KeyPattern, MatchesAnywhereInTheBytesOfAKey) {
  EXPECT_TRUE(matches("b[0-9]+", "ab17c"));
  EXPECT_FALSE(matches("^b[0-9]+$", "ab17c"));
  EXPECT_TRUE(matches("", "any"));
  EXPECT_TRUE(matches("^.\\xff$", std::string_view("\0\xff", 2)));
  EXPECT_TRUE(matches("\xc3\xbc", "gr\xc3\xbcn"));  // a letter of two bytes
}

TEST(KeyPattern, AnExpressionWithoutLinearTimeIsRefusedByTheNameOfItsConstruct) {
  for (const auto& [expression, name] : {std::pair{"a(?=b)", "a look-ahead"},
                                         {"a(?!b)", "a negative look-ahead"},
                                         {"(?<=a)b", "a look-behind"},
                                         {"(?<!a)b", "a look-behind"},
                                         {"(a)\\1", "a back-reference"},
                                         {"(?P<n>a)(?P=n)", "a back-reference by name"},
                                         {"(?>a)", "an atomic group"}}) {
    const auto pattern = KeyPattern::compile(expression);
    ASSERT_FALSE(pattern) << expression;
    EXPECT_EQ(pattern.error().code(), MC_INVALID_ARGUMENT);
    EXPECT_NE(pattern.error().text().find(name), std::string::npos) << pattern.error().text();
  }
}

TEST(KeyPattern, AnInvalidOrLargeExpressionIsRefused) {
  for (const char* const expression : {"(", "[z-a]", "a{1001}", "*"}) {
    const auto pattern = KeyPattern::compile(expression);
    ASSERT_FALSE(pattern) << expression;
    EXPECT_EQ(pattern.error().code(), MC_INVALID_ARGUMENT);
  }
  std::string expression;
  for (int i = 0; i < 40; ++i) expression += "([a-z]{0,30}[0-9]){0,30}";
  const auto large = KeyPattern::compile(expression);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), MC_TOO_LARGE);
}

// A matcher that tries way after way takes years for this key.
TEST(KeyPattern, AKeyWithManyWaysToFailIsCompared) {
  std::string expression;
  for (int i = 0; i < 100; ++i) expression += "(x+x+)+y|";
  EXPECT_FALSE(matches(expression + "z", std::string(1024, 'x')));
}

}  // namespace
}  // namespace mc::metadata
