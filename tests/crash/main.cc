// SPDX-License-Identifier: Apache-2.0
//
// The program runs the tests or a client of the tests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "crash/child.h"
#include "crash/worker.h"

int main(int argc, char** argv) {
  const std::string_view role = argc > 1 ? argv[1] : "";
  if (role == mc::crash::kScriptedRole && argc == 3) {
    return mc::crash::run_scripted_client(argv[2]);
  }
  if (role == mc::crash::kLoadingRole && argc == 7) {
    return mc::crash::run_loading_client(
        argv[2], argv[3], static_cast<unsigned>(std::atoi(argv[4])),
        static_cast<unsigned>(std::atoi(argv[5])), static_cast<unsigned>(std::atoi(argv[6])));
  }
  ::testing::InitGoogleTest(&argc, argv);
  mc::crash::watch_children();
  return RUN_ALL_TESTS();
}
