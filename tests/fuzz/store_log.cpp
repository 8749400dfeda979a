// A store's write-ahead log as a crash, or a bad disk, has left it: [how many bytes of the last
// file a cut takes, then per fragment: flags and type, bytes, these]. A flag gives the fragment a
// wrong checksum, one begins another file. Types up to 15 are themselves, 16 to 31 those from 128.
#include <rocksdb/env.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/rocks_log.h"
#include "proto/base/crc32c.h"
#include "tests/fuzz/check.h"

namespace {

using namespace syncd;
using store::LogReport;
using store::LogState;

constexpr const char* kPath = "/store";
constexpr std::uint8_t kDamaged = 0x80;
constexpr std::uint8_t kNextFile = 0x40;
constexpr std::uint8_t kRaw = 0x20;  // bytes as they are, no fragment

void append_little(std::string& out, std::uint32_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> 8 * i));
}

std::string fragment(std::uint8_t type, std::string_view bytes, bool damaged, std::size_t file) {
  std::string checked(1, static_cast<char>(type));
  const bool has_number = (type >= 5 && type <= 8) || (type >= 10 && type % 2 == 1);
  // Every other one of an earlier log, by its first byte.
  const std::uint32_t earlier = !bytes.empty() && (bytes[0] & 1) != 0 ? 100 : 0;
  if (has_number) append_little(checked, static_cast<std::uint32_t>(file) + earlier, 4);
  checked += bytes;
  std::uint32_t crc =
      mask_crc(crc32c({reinterpret_cast<const std::uint8_t*>(checked.data()), checked.size()}));
  if (damaged) ++crc;
  std::string out;
  append_little(out, crc, 4);
  append_little(out, static_cast<std::uint32_t>(bytes.size()), 2);
  return out + checked;
}

std::vector<std::string> files_of(std::string_view input) {
  std::vector<std::string> files(1);
  while (input.size() >= 2) {
    const auto flags = static_cast<std::uint8_t>(input[0]);
    const std::string_view bytes = input.substr(2, static_cast<std::uint8_t>(input[1]));
    input.remove_prefix(2 + bytes.size());
    if ((flags & kNextFile) != 0) files.emplace_back();
    const auto low = static_cast<std::uint8_t>(flags & 31);
    const auto type = static_cast<std::uint8_t>(low < 16 ? low : 112 + low);
    files.back() += (flags & kRaw) != 0
                        ? std::string(bytes)
                        : fragment(type, bytes, (flags & kDamaged) != 0, files.size() - 1);
  }
  return files;
}

std::string name_of(std::size_t file) {
  return "00000" + std::to_string(file) + ".log";
}

struct Logs {
  explicit Logs(const std::vector<std::string>& files) {
    fuzz::require(env->CreateDir(kPath).ok(), "no directory in memory");
    for (std::size_t i = 0; i < files.size(); ++i) write(i, files[i]);
  }
  void write(std::size_t file, const std::string& data) {
    fuzz::require(rocksdb::WriteStringToFile(env.get(), data, kPath + ("/" + name_of(file))).ok(),
                  "no file in memory");
  }
  // False: they are not all of one store, or of a newer version's.
  bool examine(LogReport& report) {
    std::string error;
    if (store::examine_log(env.get(), kPath, report, error)) return true;
    is_newer = error.find("which this version does not know") != std::string::npos;
    fuzz::require(is_newer || error.find("has a log of another store") != std::string::npos,
                  "unreadable", error);
    return false;
  }
  bool is_newer = false;
  std::unique_ptr<rocksdb::Env> env{rocksdb::NewMemEnv(rocksdb::Env::Default())};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t cut = data[0] + std::size_t{256} * (data[1] & 3);
  std::vector<std::string> files = files_of(fuzz::text_of({data + 2, size - 2}));
  if (files.size() > 9) return 0;
  Logs logs(files);
  LogReport report;
  if (!logs.examine(report)) {
    fuzz::require(files.size() > 1 || logs.is_newer, "a log is another store's than itself");
    return 0;
  }
  if (report.state == LogState::kWhole) {
    fuzz::require(report.cut.file.empty() && report.entries_after == 0, "whole, and damaged");
  } else {
    std::size_t file = 0;
    while (file < files.size() && name_of(file) != report.cut.file) ++file;
    fuzz::require(file < files.size(), "damage in a file that is not there", report.cut.file);
    fuzz::require(report.cut.at + report.cut.bytes == files[file].size(), "damage beyond the end");
    fuzz::require((report.entries_after > 0) == (report.state == LogState::kDamaged),
                  "a cut-off end is the last, damage is not");
  }
  // Once all of it was whole and the store was closed, nothing may be missing.
  fuzz::require(store::note_files(logs.env.get(), kPath), "no note in memory");
  LogReport noted;
  fuzz::require(logs.examine(noted), "a note makes it another store's");
  fuzz::require(noted.state == report.state || report.state == LogState::kCutOff,
                "a note changes what is there");
  if (report.state == LogState::kWhole && cut > 0 && cut <= files.back().size()) {
    files.back().resize(files.back().size() - cut);
    logs.write(files.size() - 1, files.back());
    fuzz::require(logs.examine(noted) && noted.state == LogState::kDamaged, "a cut is not seen");
  }
  return 0;
}
