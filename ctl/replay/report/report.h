// SPDX-License-Identifier: Apache-2.0
//
// What it is: the replay as one HTML page that needs nothing but itself: no script, no font, no
// network. Threads: any; pure. Owns nothing. Trusts: nothing; all text is escaped.
#pragma once

#include <string>

#include "ctl/replay/report/summary.h"

namespace mc::ctl {

std::string report_html(const ReplaySummary& summary);

}  // namespace mc::ctl
