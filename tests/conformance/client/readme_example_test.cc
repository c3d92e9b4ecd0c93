// SPDX-License-Identifier: Apache-2.0
//
// The C++ example of libmc/README.md: compiles and runs its lines, and checks that the page has the
// same lines.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "agent/embedded.h"
#include "patience.h"

// [example]
#include "mc/mc.hpp"

mc::Status remember(mc::Client& client, std::string_view prefix, std::span<const std::byte> block) {
  // One copy, straight into the pool; a key that exists is left as it is.
  if (mc::Status status = client.put(prefix, block); !status.ok()) return status;

  // In place, read-only, and neither evicted nor reused while the view lives.
  mc::Result<mc::View> view = client.get_view(prefix);
  if (!view) return view.error();  // evicted in between: MC_NOT_FOUND, not a fault
  return view->verify(prefix);
}
// [example]

namespace {

std::vector<std::string> lines_between(const std::string& path, std::string_view first,
                                       std::string_view last) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::vector<std::string> lines;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (inside && line == last) return lines;
    if (inside) lines.push_back(line);
    if (line == first) inside = true;
  }
  return {};
}

TEST(ReadmeExample, StoresAndVerifiesAnObject) {
  mc::agent::register_embedded_agent();
  ::alarm(mc::kTestSeconds);
  {
    mc::Result<mc::Client> client =
        mc::Client::open({.agent = "embedded", .embedded_config = "pool_bytes=16MiB\n"});
    ASSERT_TRUE(client) << client.error().to_string();
    const std::string block(100000, 'k');
    const mc::Status status = remember(*client, "prefix", mc::as_bytes(block));
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(client->stat("prefix")->length, block.size());
    EXPECT_EQ(remember(*client, "", mc::as_bytes(block)).code(), MC_INVALID_ARGUMENT);
  }
  ::alarm(0);
}

TEST(ReadmeExample, MatchesTheReadmeLineForLine) {
  const std::string source = MC_SOURCE_DIR;
  const std::vector<std::string> here = lines_between(
      source + "/tests/conformance/client/readme_example_test.cc", "// [example]", "// [example]");
  ASSERT_FALSE(here.empty());
  EXPECT_EQ(lines_between(source + "/libmc/README.md", "```cpp", "```"), here);
}

}  // namespace
