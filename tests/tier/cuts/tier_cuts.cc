// SPDX-License-Identifier: Apache-2.0
//
// Power cuts under the kernel's block layer. `write` runs a tier on a device of the device mapper's
// target log-writes, and marks in the log how far its history goes. `check` makes the states of the disk
// that a power cut may leave, and starts a tier on each. Then it leaves one on the disk, from which
// `write` goes on. tests/tier/cuts/run does both in the virtual
// machine.
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <unordered_map>

#include "libmc/base/checksum.h"
#include "tier/cuts/driver.h"
#include "tier/cuts/history.h"
#include "tier/cuts/write_log.h"

namespace mc::tier::cuts {
namespace {

using Kind = Event::Kind;
using Outcome = LogEnd::Outcome;

ObjectName object_name(const std::string& key) { return {.key = key, .namespace_id = kNamespace}; }

// ---- write

class Marks {
 public:
  explicit Marks(std::string device)
      : name_(device.substr(device.rfind('/') + 1)),
        control_(::open("/dev/mapper/control", O_RDWR | O_CLOEXEC)) {
    if (!control_) die("cannot open the device mapper");
  }
  // Stands in the log behind all that is durable.
  void send(std::size_t number) const {
    const std::string text = "mark " + std::to_string(number);
    // The text stands behind the head and the number of a sector.
    alignas(dm_ioctl) std::array<char, sizeof(dm_ioctl) + sizeof(dm_target_msg) + 64> call{};
    dm_ioctl head{};
    head.version[0] = DM_VERSION_MAJOR;
    head.data_size = sizeof(call);
    head.data_start = sizeof(head);
    name_.copy(head.name, sizeof(head.name) - 1);
    std::memcpy(call.data(), &head, sizeof(head));
    text.copy(call.data() + sizeof(head) + offsetof(dm_target_msg, message), text.size());
    if (::ioctl(control_.get(), DM_TARGET_MSG, call.data()) != 0) die("cannot send a mark");
  }

 private:
  std::string name_;
  Fd control_;
};

struct Workload {
  std::uint64_t seed = 0;
  bool fills = false;  // the objects have no room together
  std::uint64_t steps = 0;
};

class Writer {
 public:
  Writer(const std::string& device, const std::string& history, const Workload& workload)
      : device_(device),
        marks_(device),
        history_(history, std::ios::app),
        workload_(workload),
        random_(workload.seed),
        first_key_(workload.fills ? kFirstLargeKey : 0),
        versions_(workload.fills ? 900 : 400) {
    for (const Event& event : read_history(history)) {
      if (event.kind == Kind::kPut) version_of(event.key) = event.version;
      ++events_;
    }
  }

  void run() {
    begin_life();
    if (events_ > 0) look();
    for (std::uint64_t step = 0; step < workload_.steps; ++step) {
      if (step % (workload_.steps / kLives) == 0 && step > 0) restart();
      const std::uint64_t dice = random_() % 100;
      if (under_way_.size() >= kMostUnderWay || dice < 5) {
        turn();
      } else {
        dice < 85 ? put() : remove();
      }
    }
    // The history has to say of all objects that leave.
    driver_->turn_until("the last puts", [this] {
      take();
      return under_way_.empty() && log().idle();
    });
    take();
    mark();
    const DiskReport report = driver_->report().disk;
    std::printf(
        "wrote: %zu events, %zu marks, %zu segments cleaned, %zu bytes copied, %zu objects dropped; %s, %s\n",
        events_, sent_marks_, cleaned_ + report.cleaner.segments,
        copied_ + report.cleaner.copied_bytes, dropped_, driver_->report().engine.c_str(),
        driver_->report().cache.c_str());
  }

 private:
  static constexpr std::uint64_t kLives = 3;
  static constexpr std::size_t kMostUnderWay = 12;
  struct Asked {
    std::uint32_t key = 0;
    std::uint64_t version = 0;
    bool put = false;
    std::vector<std::byte> bytes = {};
  };

  Log& log() { return driver_->log(); }
  std::uint32_t any_key() {
    return first_key_ + static_cast<std::uint32_t>(random_() % versions_.size());
  }
  // Of the last put.
  std::uint64_t& version_of(std::uint32_t key) { return versions_[key - first_key_]; }
  void note(Kind kind, std::uint32_t key, std::uint64_t version) {
    history_ << kKindNames[static_cast<std::size_t>(kind)] << ' ' << key << ' ' << version << '\n';
    ++events_;
  }
  void mark() {
    marks_.send(events_);
    ++sent_marks_;
  }
  void begin_life() {
    driver_ = std::make_unique<Driver>(device_);
    driver_->start();
  }
  // As after the end of the agent's process.
  void restart() {
    take();
    const Cleaner::Counters cleaner = driver_->report().disk.cleaner;
    cleaned_ += cleaner.segments;
    copied_ += cleaner.copied_bytes;
    driver_.reset();
    under_way_.clear();
    note(Kind::kRestart, 0, 0);
    begin_life();
    look();
  }
  void look() {
    for (std::uint32_t i = 0; i < versions_.size(); ++i) {
      const std::uint32_t key = first_key_ + i;
      const std::string name = name_of_key(key);
      names_[log().hash_of(object_name(name))] = key;
      const TierEntry* const entry = log().find(object_name(name));
      if (versions_[i] != 0) {
        note(entry != nullptr ? Kind::kFound : Kind::kLost, key,
             entry != nullptr ? entry->version : 0);
      }
    }
    mark();
  }

  void put() {
    const std::uint32_t key = any_key();
    const std::uint64_t version = version_of(key) + 1;
    const std::string name = name_of_key(key);
    Asked asked{.key = key, .version = version, .put = true, .bytes = value_of(key, version)};
    const NewObject object{.name = object_name(name),
                           .version = version,
                           .length = asked.bytes.size(),
                           .sum_seed = kSumSeed,
                           .checksum = checksum(kSumSeed, asked.bytes.data(), asked.bytes.size()),
                           .soon = random_() % 4 == 0};
    const auto ticket = log().put(object, {{asked.bytes.data(), asked.bytes.size()}});
    if (!ticket) {
      if (ticket.error() != Log::Refusal::kBusy) die("a put is refused");
      return turn();
    }
    names_[log().hash_of(object_name(name))] = key;
    version_of(key) = version;
    note(Kind::kPut, key, version);
    under_way_.emplace(*ticket, std::move(asked));
  }
  void remove() {
    const std::uint32_t key = any_key();
    if (version_of(key) == 0) return turn();
    const std::string name = name_of_key(key);
    note(Kind::kRemove, key, 0);
    const auto ticket = log().remove(object_name(name));
    if (!ticket) die("a removal is refused");
    if (*ticket) {
      under_way_.emplace(**ticket, Asked{.key = key, .version = version_of(key) + 1});
    } else {
      note(Kind::kRemoved, key, version_of(key) + 1);
    }
  }
  void turn() {
    driver_->turn();
    take();
  }
  void take() {
    const std::size_t before = events_;
    for (const LogEnd& end : driver_->ends) {
      const auto asked = under_way_.find(end.ticket);
      if (asked == under_way_.end()) die("an end of nothing");
      const auto& [key, version, put, bytes] = asked->second;
      if (end.outcome == Outcome::kDone) {
        note(put ? Kind::kDone : Kind::kRemoved, key, version);
      } else if (!put || end.outcome != Outcome::kGone) {
        die("the write of " + name_of_key(key) + " failed");
      }
      under_way_.erase(asked);
    }
    driver_->ends.clear();
    for (const Dropped& dropped : driver_->dropped) {
      const auto name = names_.find(dropped.key.hash);
      if (name == names_.end()) die("an unknown object has left");
      note(Kind::kDropped, name->second, dropped.version);
      ++dropped_;
    }
    driver_->dropped.clear();
    if (events_ != before) mark();
  }

  const std::string device_;
  const Marks marks_;
  std::ofstream history_;
  const Workload workload_;
  std::mt19937_64 random_;
  const std::uint32_t first_key_;
  std::vector<std::uint64_t> versions_;
  std::unordered_map<std::uint64_t, Asked> under_way_;      // by ticket
  std::unordered_map<std::uint64_t, std::uint32_t> names_;  // by TierKey::hash
  std::size_t events_ = 0, sent_marks_ = 0;
  std::size_t cleaned_ = 0, copied_ = 0, dropped_ = 0;
  std::unique_ptr<Driver> driver_;
};

// ---- check

class Image {
 public:
  void apply(std::uint64_t offset, std::span<const std::byte> data) {
    if (offset > bytes().size() || data.size() > bytes().size() - offset)
      die("a write past the disk");
    std::memcpy(bytes().data() + offset, data.data(), data.size());
  }
  void copy_to(const std::string& device) const {
    const Fd fd(::open(device.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
    if (!fd) die("cannot open " + device);
    for (std::size_t at = 0; at < bytes().size();) {
      const ssize_t written =
          ::pwrite(fd.get(), bytes().data() + at,
                   std::min<std::size_t>(bytes().size() - at, 4 << 20), static_cast<off_t>(at));
      if (written <= 0) die("cannot write " + device);
      at += static_cast<std::size_t>(written);
    }
    if (::fsync(fd.get()) != 0) die("cannot flush " + device);
  }
  void read(const std::string& device) {
    std::ifstream file(device, std::ios::binary);
    file.read(reinterpret_cast<char*>(bytes().data()),
              static_cast<std::streamsize>(bytes().size()));
    if (!file) die("cannot read " + device);
  }
  bool is_on(const std::string& device) const {
    Image found;
    found.read(device);
    return std::ranges::equal(found.bytes(), bytes());
  }

 private:
  // As O_DIRECT wants the memory.
  struct alignas(kBlockBytes) Block {
    std::array<std::byte, kBlockBytes> bytes{};
  };
  std::vector<Block> blocks_ = std::vector<Block>(kLeastDiskBytes / kBlockBytes);

  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(blocks_)); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(blocks_)); }
};

struct Devices {
  // before: the disk as it was when the log began.
  std::string disk, log, copy, before;
};

class Checker {
 public:
  Checker(Devices devices, const std::string& history, std::uint64_t seed, std::size_t cuts)
      : devices_(std::move(devices)),
        log_(devices_.log),
        history_path_(history),
        history_(read_history(history)),
        random_(seed),
        cuts_(cuts) {}

  // Cuts the power for the next writer: not before half of the log.
  void leave() {
    image_.read(devices_.before);
    applied_ = 0;
    std::size_t end = entries().size() / 2 + random_() % (entries().size() / 2);
    while (!entries()[end - 1].flush) --end;
    advance(end);
    const auto [before, after] = events_at(tear(image_, end));
    image_.copy_to(devices_.disk);
    image_.copy_to(devices_.before);
    write_history(history_path_, cut_history(history_, before, after));
  }
  // Returns the number of defects.
  std::size_t run() {
    for (std::size_t i = 0; i < entries().size(); ++i) {
      if (const auto number = number_of_mark(i)) marks_.push_back({i, *number});
      if (entries()[i].flush) ++flushes_;
    }
    if (marks_.empty()) die("the log has no mark");
    if (marks_.back().events != history_.size()) die("the log lacks the last mark");
    for (std::size_t i = 0; i < history_.size(); ++i) {
      if (history_[i].kind == Kind::kCut) first_event_ = i + 1;
    }
    for (const std::string& defect : defects_of(history_)) {
      ++defects_;
      std::printf("DEFECT: after a start %s\n", defect.c_str());
    }
    image_.read(devices_.before);
    for (const Cut& cut : choose(cuts_)) {
      look_at(cut);
      if (defects_ >= kMostDefects) break;
    }
    if (defects_ == 0) {
      advance(entries().size());
      // Else this program and the kernel do not mean the same by the log.
      if (!image_.is_on(devices_.disk)) die("the replayed log differs from the disk");
    }
    std::printf(
        "checked: %zu cuts of %zu entries, %zu flushes, %zu marks: %zu objects read, %zu had to be there; %zu defects\n",
        looked_at_, entries().size(), flushes_, marks_.size(), objects_, musts_, defects_);
    return defects_;
  }

 private:
  static constexpr std::size_t kMostDefects = 10;
  static constexpr std::size_t kReadsAtOnce = 8;
  enum class How : std::uint8_t {
    kMark,    // after a mark: what has been acknowledged is there
    kPrefix,  // after any entry
    kTorn,    // and of the writes that no flush has made durable, each sector is there or not
  };
  struct Cut {
    std::size_t entries = 0;  // whole
    How how = How::kMark;
  };
  struct Mark {
    std::size_t entry = 0;
    std::size_t events = 0;
  };
  struct Read {
    std::uint32_t key = 0;
    std::vector<std::byte> bytes;
  };

  const std::vector<WriteLog::Entry>& entries() const { return log_.entries(); }
  std::optional<std::size_t> number_of_mark(std::size_t entry) const {
    const std::string& mark = entries()[entry].mark;
    if (mark.empty() || mark.find_first_not_of("0123456789") != std::string::npos) return {};
    return std::stoull(mark);
  }
  std::vector<Cut> choose(std::size_t count) {
    std::vector<Cut> cuts;
    for (std::size_t i = 0; i < count; ++i) {
      const How how = static_cast<How>(i % 3);
      std::size_t end = random_() % (entries().size() + 1);
      if (how == How::kMark) end = marks_[random_() % marks_.size()].entry + 1;
      // The states of a torn cut are those just before a flush ends.
      while (how == How::kTorn && end > 0 && !entries()[end - 1].flush) --end;
      cuts.push_back({.entries = end, .how = how});
    }
    std::stable_sort(cuts.begin(), cuts.end(),
                     [](const Cut& a, const Cut& b) { return a.entries < b.entries; });
    return cuts;
  }
  void advance(std::size_t end) {
    for (; applied_ < end; ++applied_) apply(image_, entries()[applied_]);
  }
  void apply(Image& image, const WriteLog::Entry& entry) const {
    image.apply(entry.offset, log_.data_of(entry));
  }
  // Returns the number of the first entry that is not a part of the state.
  std::size_t tear(Image& image, std::size_t from) {
    // A write may be all there, all gone or torn.
    for (; from < entries().size() && !entries()[from].flush; ++from) {
      const WriteLog::Entry& entry = entries()[from];
      const std::vector<std::byte> data = log_.data_of(entry);
      const std::uint64_t fate = entry.fua ? 0 : random_() % 3;
      for (std::uint64_t at = 0; at < data.size(); at += log_.sector_bytes()) {
        if (fate == 1 || (fate == 2 && random_() % 2 == 0)) continue;
        image.apply(entry.offset + at, std::span(data).subspan(at, log_.sector_bytes()));
      }
    }
    return from;
  }

  // The events between which the power is cut if the state has `end` entries or less.
  std::pair<std::size_t, std::size_t> events_at(std::size_t end) const {
    const auto next =
        std::upper_bound(marks_.begin(), marks_.end(), end,
                         [](std::size_t entry, const Mark& mark) { return entry <= mark.entry; });
    return {next == marks_.begin() ? first_event_ : std::prev(next)->events,
            next == marks_.end() ? history_.size() : next->events};
  }
  void look_at(const Cut& cut) {
    advance(cut.entries);
    std::size_t end = cut.entries;
    Image image = image_;
    if (cut.how == How::kTorn) end = tear(image, cut.entries);
    image.copy_to(devices_.copy);
    const auto [before, after] = events_at(end);
    where_ = "cut " + std::to_string(looked_at_) + " (" +
             (cut.how == How::kTorn ? "torn" : "whole") + ", entries " +
             std::to_string(cut.entries) + " to " + std::to_string(end) + ", events " +
             std::to_string(before) + " to " + std::to_string(after) + ")";
    ++looked_at_;
    compare(allowed_at(history_, before, after));
  }

  void compare(const std::map<std::uint32_t, Allowed>& allowed) {
    Driver driver(devices_.copy);
    driver.turn_until("recovery", [&driver] { return !driver.log().recovering(); });
    std::unordered_map<std::uint64_t, Read> reads;
    for (const auto& [key, state] : allowed) {
      if (state.must_exist) ++musts_;
      begin_read(driver, key, state, reads);
      const std::size_t most = key == allowed.rbegin()->first ? 0 : kReadsAtOnce - 1;
      driver.turn_until("reads", [&] {
        take_reads(driver, allowed, reads);
        return reads.size() <= most;
      });
    }
    driver.turn_until("reads", [&] {
      take_reads(driver, allowed, reads);
      return reads.empty();
    });
    put_one(driver);
  }
  void begin_read(Driver& driver, std::uint32_t key, const Allowed& state,
                  std::unordered_map<std::uint64_t, Read>& reads) {
    const std::string name = name_of_key(key);
    const TierEntry* const entry = driver.log().find(object_name(name));
    if (entry == nullptr) {
      if (state.must_exist && !has_left(driver, key)) defect(key, "is lost");
      return;
    }
    Read read{.key = key, .bytes = std::vector<std::byte>(entry->length)};
    const auto ticket = driver.log().read(
        object_name(name), {{read.bytes.data(), read.bytes.size()}}, Urgency::kGet, kSumSeed);
    if (!ticket) return defect(key, "cannot be read");
    reads.emplace(*ticket, std::move(read));
  }
  void take_reads(Driver& driver, const std::map<std::uint32_t, Allowed>& allowed,
                  std::unordered_map<std::uint64_t, Read>& reads) {
    for (const LogEnd& end : std::exchange(driver.ends, {})) {
      const auto found = reads.find(end.ticket);
      if (found == reads.end()) die("an end of nothing");
      const Read read = std::move(found->second);
      reads.erase(found);
      const Allowed& state = allowed.at(read.key);
      ++objects_;
      if (end.outcome == Outcome::kGone && has_left(driver, read.key)) continue;
      if (end.outcome != Outcome::kDone) {
        constexpr std::array kOutcomes{"done", "failed", "damaged", "gone"};
        defect(read.key, std::string("is ") + kOutcomes[static_cast<std::size_t>(end.outcome)]);
        continue;
      }
      const std::uint64_t version = end.header.version;
      if (std::find(state.versions.begin(), state.versions.end(), version) ==
          state.versions.end()) {
        defect(read.key, "comes back with version " + std::to_string(version));
      } else if (read.bytes != value_of(read.key, version)) {
        defect(read.key, "has wrong bytes in version " + std::to_string(version));
      }
    }
  }
  // The start itself may have had to make room.
  static bool has_left(Driver& driver, std::uint32_t key) {
    const std::uint64_t hash = driver.log().hash_of(object_name(name_of_key(key)));
    return std::any_of(driver.dropped.begin(), driver.dropped.end(),
                       [hash](const Dropped& dropped) { return dropped.key.hash == hash; });
  }
  // The tier goes on.
  void put_one(Driver& driver) {
    std::vector<std::byte> bytes = value_of(UINT32_MAX, 1), got(bytes.size());
    const std::string name = "after the cut";
    const NewObject object{.name = object_name(name),
                           .version = looked_at_,
                           .length = bytes.size(),
                           .sum_seed = kSumSeed,
                           .checksum = checksum(kSumSeed, bytes.data(), bytes.size()),
                           .soon = true};
    driver.turn_until("a put", [&] {
      const auto ticket = driver.log().put(object, {{bytes.data(), bytes.size()}});
      return ticket.has_value();
    });
    wait_for_end(driver, "a put");
    if (!driver.log().read(object_name(name), {{got.data(), got.size()}}, Urgency::kGet, kSumSeed))
      die(where_ + ": a put is not found");
    wait_for_end(driver, "a read");
    if (got != bytes) die(where_ + ": a put has wrong bytes");
  }
  void wait_for_end(Driver& driver, const std::string& what) {
    driver.turn_until(what.c_str(), [&driver] { return !driver.ends.empty(); });
    if (driver.ends.front().outcome != Outcome::kDone) die(where_ + ": " + what + " failed");
    driver.ends.clear();
  }
  void defect(std::uint32_t key, const std::string& what) {
    if (++defects_ > kMostDefects) return;
    std::printf("DEFECT: %s: %s %s\n", where_.c_str(), name_of_key(key).c_str(), what.c_str());
    std::fflush(stdout);
  }

  const Devices devices_;
  const WriteLog log_;
  const std::string history_path_;
  const std::vector<Event> history_;
  std::mt19937_64 random_;
  const std::size_t cuts_;
  std::vector<Mark> marks_;
  std::size_t flushes_ = 0;
  std::size_t first_event_ = 0;  // in the log
  Image image_;
  std::size_t applied_ = 0;  // entries in the image
  std::string where_;
  std::size_t looked_at_ = 0, objects_ = 0, musts_ = 0, defects_ = 0;
};

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

}  // namespace
}  // namespace mc::tier::cuts

int main(int argc, char** argv) {
  using namespace mc::tier::cuts;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "write" && argc == 7) {
    Writer(argv[2], argv[3],
           {.seed = number(argv[4]),
            .fills = std::string_view(argv[5]) == "fills",
            .steps = number(argv[6])})
        .run();
    return 0;
  }
  if (mode == "check" && argc == 9) {
    Checker checker({.disk = argv[2], .log = argv[3], .copy = argv[4], .before = argv[5]}, argv[6],
                    number(argv[7]), number(argv[8]));
    if (checker.run() != 0) return 1;
    checker.leave();
    return 0;
  }
  std::fprintf(
      stderr,
      "usage: tier_cuts write MAPPED-DEVICE HISTORY SEED fits|fills STEPS\n"
      "       tier_cuts check DEVICE LOG-DEVICE COPY-DEVICE DEVICE-BEFORE HISTORY SEED CUTS\n");
  return 2;
}
