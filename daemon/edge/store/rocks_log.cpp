// See rocks_log.h.
#include "daemon/edge/store/rocks_log.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/record_groups.h"
#include "proto/base/crc32c.h"

namespace syncd::store {
namespace {

// A log is blocks of this size. An entry is one fragment, or a first, middles and a last; none
// crosses a block's end.
constexpr std::size_t kBlock = 32 * 1024;
constexpr std::size_t kHeader = 7;  // masked CRC-32C, length (2), type (1)
// What is looked through for a next fragment, bytes of checksums a block: more than random bytes
// take. The next block begins with one in any case.
constexpr std::size_t kSearched = 2 * 1024 * 1024;

// Fragments by RocksDB's types 1 to 9, 10 and 11, 130 and 131. A later version may add types from
// 128 on, which an earlier one passes over.
enum class Kind : std::uint8_t {
  kFull,
  kFirst,
  kMiddle,
  kLast,
  kCompression,  // the entries after it are compressed
  kAside,        // sizes of timestamps, the log before this one, or what may be passed over
  kUnknown,
};
constexpr std::uint8_t kFullType = 1;
constexpr std::uint8_t kRecyclableFullType = 5;
constexpr std::uint8_t kRecyclableLastType = 8;
constexpr std::uint8_t kCompressionType = 9;
constexpr std::uint8_t kTimestampSizesType = 10;
constexpr std::uint8_t kRecyclableTimestampSizesType = 11;
constexpr std::uint8_t kIgnorableTypes = 0x80;
// In a log that takes the place of an earlier one, in its file, the header also has the low half of
// the log's number: what follows the last entry may be the earlier log's.
constexpr std::size_t kLogNumber = 4;

constexpr bool is_recyclable(std::uint8_t type) {
  return (type >= kRecyclableFullType && type <= kRecyclableLastType) ||
         (type >= kTimestampSizesType && (type & 1) != 0);
}

constexpr Kind kind_of(std::uint8_t type) {
  if (type >= kFullType && type <= kRecyclableLastType) {
    return static_cast<Kind>((type - kFullType) % (kRecyclableFullType - kFullType));
  }
  if (type == kCompressionType) return Kind::kCompression;
  const bool is_aside = type == kTimestampSizesType || type == kRecyclableTimestampSizesType ||
                        (type & kIgnorableTypes) != 0;
  return is_aside ? Kind::kAside : Kind::kUnknown;
}

struct Fragment {
  std::uint8_t type = 0;
  std::size_t header = kHeader;
  std::size_t length = 0;  // of what follows the header

  Kind kind() const { return kind_of(type); }
  std::size_t bytes() const { return header + length; }
};

std::uint64_t little(const std::string& data, std::size_t at, std::size_t bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes; i-- > 0;)
    number = number << 8 | static_cast<std::uint8_t>(data[at + i]);
  return number;
}

// What the header at `at` says, if a fragment can lie there.
std::optional<Fragment> header_at(const std::string& data, std::size_t at) {
  const std::size_t end = std::min((at / kBlock + 1) * kBlock, data.size());
  if (at + kHeader > end) return {};
  Fragment fragment{static_cast<std::uint8_t>(data[at + 6]), kHeader, little(data, at + 4, 2)};
  if (fragment.type == 0) return {};
  if (is_recyclable(fragment.type)) fragment.header += kLogNumber;
  if (at + fragment.bytes() > end) return {};
  return fragment;
}

bool is_undamaged(const std::string& data, std::size_t at, const Fragment& fragment) {
  const auto* checked = reinterpret_cast<const std::uint8_t*>(data.data()) + at + 6;
  return mask_crc(crc32c({checked, fragment.bytes() - 6})) == little(data, at, 4);
}

// The number that a log's name is.
std::uint64_t number_of(const std::string& name) {
  std::uint64_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  return number;
}

// What an entry says of itself, even if it is not all there: a WriteBatch is a sequence number, a
// count, and per key a tag, a column family, and key and value behind their lengths. A compressed
// one, which the store does not ask RocksDB for, says nothing.
class LoggedBatch {
 public:
  LoggedBatch(const std::string& data, std::size_t at, bool is_compressed)
      : is_compressed_(is_compressed) {
    if (is_compressed) return;
    while (at + kHeader <= data.size()) {
      const std::size_t block_end = std::min((at / kBlock + 1) * kBlock, data.size());
      const auto type = static_cast<std::uint8_t>(data[at + 6]);
      const std::size_t begin = at + kHeader + (is_recyclable(type) ? kLogNumber : 0);
      const std::size_t end = std::min(begin + little(data, at + 4, 2), block_end);
      if (begin >= end) break;
      bytes_.append(data, begin, end - begin);
      if (kind_of(type) != Kind::kFirst && kind_of(type) != Kind::kMiddle) break;
      at = block_end;
    }
  }

  // What RocksDB numbers every write with, in order over all logs: of the first one.
  std::optional<std::uint64_t> number() const {
    if (bytes_.size() < kBatchHeader) return {};
    return little(bytes_, 0, 8);
  }
  bool has_writes() const { return is_compressed_ || bytes_.size() > kBatchHeader; }

  // Its writes, as far as they can be read. The value of the last one may not be all there: then
  // `whole` is false.
  template <class Take>
  void each(const Take& take) {
    LoggedWrite write;
    for (at_ = kBatchHeader; at_ < bytes_.size();) {
      switch (bytes_[at_++]) {
        case kPutTag:
          write.kind = LoggedWrite::Kind::kPut;
          break;
        case kDeleteTag:
          write.kind = LoggedWrite::Kind::kDelete;
          break;
        case kDeleteRangeTag:
          write.kind = LoggedWrite::Kind::kDeleteRange;
          break;
        default:
          return;  // the store writes nothing else
      }
      if (!varint(write.family) || !text_of(write.key)) return;
      write.value.clear();
      const bool whole = write.kind == LoggedWrite::Kind::kDelete || text_of(write.value);
      take(write, whole);
      if (!whole) return;
    }
  }

  // First and last record of each job, as far as that can be read.
  using Ranges = std::map<JobId, std::pair<Sequence, Sequence>>;
  Ranges ranges() {
    Ranges found;
    each([&](const LoggedWrite& write, bool) {
      if (write.kind != LoggedWrite::Kind::kPut || write.family != kRecords) return;
      if (write.key.size() != 12) return;
      const Sequence begin = first_in(write.key, write.value);
      auto& [first, last] = found.try_emplace(job_of(write.key), begin, 0).first->second;
      first = std::min(first, begin);
      last = std::max(last, sequence_of(write.key));
    });
    return found;
  }

 private:
  static constexpr std::size_t kBatchHeader = 12;
  static constexpr char kDeleteTag = 0x4;
  static constexpr char kPutTag = 0x5;
  static constexpr char kDeleteRangeTag = 0xE;

  bool varint(std::uint32_t& out) {
    out = 0;
    for (int shift = 0; shift < 35 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<std::uint8_t>(bytes_[at_++]);
      out |= static_cast<std::uint32_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool text_of(std::string& out) {
    std::uint32_t length = 0;
    if (!varint(length)) return false;
    out.assign(bytes_, at_, length);
    at_ += out.size();
    return out.size() == length;
  }

  const bool is_compressed_;
  std::string bytes_;
  std::size_t at_ = 0;
};

bool is_log(const std::string& name) {
  return name.ends_with(".log");
}
bool is_table(const std::string& name) {
  return name.ends_with(".sst") || name.ends_with(".ldb");
}
bool is_manifest(const std::string& name) {
  return name.starts_with("MANIFEST-");
}

// Text files of the store: a checksum of the rest, and of each file that matters its name, its
// bytes and, but for table files, which have checksums of their own, a checksum of these. (A log's
// or a manifest's entry whose length is damaged may look like the end of it.)
constexpr const char* kClosedNote = "/CLOSED";
constexpr const char* kOpenNote = "/SYNCED";

std::string checksum_text(std::string_view text) {
  return std::to_string(crc32c({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}));
}

struct Noted {
  std::uint64_t bytes = 0;
  std::string checksum;  // empty: none was noted

  bool is_of(const std::string& data) const {
    return data.size() >= bytes &&
           (checksum.empty() || checksum == checksum_text(std::string_view(data).substr(0, bytes)));
  }
};
using Note = std::map<std::string, Noted>;  // by the files' names

std::string note_line(const std::string& name, const std::string& data) {
  return name + " " + std::to_string(data.size()) + " " + checksum_text(data) + "\n";
}

// Empty where there is no note, or one that was not all written.
Note read_note(rocksdb::Env* env, const std::string& file) {
  std::string text;
  if (!rocksdb::ReadFileToString(env, file, &text).ok()) return {};
  const std::size_t line = text.find('\n');
  if (line == std::string::npos || text.substr(0, line) != checksum_text(text.substr(line + 1))) {
    return {};
  }
  std::istringstream in(text.substr(line + 1));
  Note note;
  for (std::string of_file; std::getline(in, of_file);) {
    std::istringstream words(of_file);
    std::string name;
    Noted noted;
    if (words >> name >> noted.bytes) {
      words >> noted.checksum;
      note[name] = noted;
    }
  }
  return note;
}

rocksdb::Status write_note(rocksdb::Env* env, const std::string& file, const std::string& sizes) {
  return rocksdb::WriteStringToFile(env, checksum_text(sizes) + "\n" + sizes, file, true);
}

// Of a file that has not all the bytes that were noted, the beginning of a sentence that says so.
std::string difference(rocksdb::Env* env, const std::string& path, const std::string& name,
                       const Noted& noted) {
  std::uint64_t found = 0;
  const std::string file = path + "/" + name;
  if (!env->GetFileSize(file, &found).ok()) return {};
  const std::string all = std::to_string(noted.bytes) + " that ";
  if (found < noted.bytes) {
    return "its file " + name + " has " + std::to_string(found) + " bytes of the " + all;
  }
  // A log's content is looked at where its entries are, which tells more.
  if (!is_manifest(name)) return {};
  std::string data;
  if (!rocksdb::ReadFileToString(env, file, &data).ok() || noted.is_of(data)) return {};
  return "its file " + name + " has not the same first bytes as the " + all;
}

// The name of the manifest that counts; empty: CURRENT cannot be read.
std::string current_manifest(rocksdb::Env* env, const std::string& path) {
  std::string name;
  if (!rocksdb::ReadFileToString(env, path + "/CURRENT", &name).ok()) return {};
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

bool by_number(const std::string& one, const std::string& other) {
  return one.size() != other.size() ? one.size() < other.size() : one < other;
}

// Those whose names `wanted` takes, by their numbers.
template <class Wanted>
std::vector<std::string> files(rocksdb::Env* env, const std::string& path, const Wanted& wanted) {
  std::vector<std::string> names;
  env->GetChildren(path, &names).PermitUncheckedError();
  std::erase_if(names, [&](const std::string& name) { return !wanted(name); });
  std::sort(names.begin(), names.end(), by_number);
  return names;
}

// Goes through the files in their order.
class Examination {
 public:
  // `on_whole` gets each whole entry.
  using OnWhole = std::function<void(LoggedBatch&& entry)>;
  Examination(LogReport& report, Note whole, OnWhole on_whole = {})
      : report_(report), whole_(std::move(whole)), on_whole_(std::move(on_whole)) {}

  void file(const std::string& name, const std::string& data) {
    std::size_t entry = 0;
    bool within = false;  // an entry that began at `entry`
    // Nothing but zeros follows: room that was never written to.
    end_ = data.find_last_not_of('\0') + 1;
    is_recycled_ = false;
    is_compressed_ = false;
    const bool found_before = found_;
    std::optional<std::size_t> first;
    std::size_t last = 0;
    std::size_t searched = 0;  // of the block at hand
    std::size_t at = 0;
    while (at < end_) {
      if (at % kBlock == 0) searched = 0;
      const std::size_t left = kBlock - at % kBlock;
      if (left < kHeader || is_trailer(data, at, left, within)) {
        at += left;
        continue;
      }
      const auto fragment = header_at(data, at);
      const bool good = fragment && !is_chance(*fragment) && is_undamaged(data, at, *fragment);
      is_recycled_ |= good && is_recyclable(fragment->type);
      if (!good || is_leftover(name, data, at, *fragment)) {
        damaged(name, data, within ? entry : at);
        within = false;
        searched += fragment ? fragment->length : 0;
        // The next whole fragment may begin anywhere.
        at += searched > kSearched ? left : 1;
        continue;
      }
      const Kind kind = fragment->kind();
      if (kind == Kind::kUnknown && unknown_.empty()) {
        unknown_ = "its log " + name + " has an entry of the type " +
                   std::to_string(fragment->type) + " at byte " + std::to_string(at);
      }
      if (kind >= Kind::kCompression) {
        // Nothing comes between the parts of an entry, and all entries or none are compressed.
        const bool is_late = kind == Kind::kCompression && (first || is_compressed_);
        if (within || is_late) damaged(name, data, within ? entry : at);
        within = false;
        is_compressed_ |= kind == Kind::kCompression && !is_late;
        at += fragment->bytes();
        if (!is_late) end_stretch(name, at - fragment->bytes());
        continue;
      }
      const bool begins = kind == Kind::kFull || kind == Kind::kFirst;
      if (begins == within) damaged(name, data, within ? entry : at);
      if (begins) entry = at;
      const bool whole = kind == Kind::kFull || (within && kind == Kind::kLast);
      within = kind == Kind::kFirst || (within && kind == Kind::kMiddle);
      if (whole) {
        end_stretch(name, entry);
        if (!first) first = entry;
        last = entry;
      }
      if (whole && on_whole_) on_whole_(batch_at(data, entry));
      if (whole && found_) {
        ++report_.entries_after;
        look_at(batch_at(data, entry).ranges());
      }
      at += fragment->bytes();
    }
    if (within) damaged(name, data, entry);
    end_stretch(name, end_);
    // Behind the last entry of such a log lies what is left of the earlier one: whole fragments,
    // and one that the last entry was written into.
    if (is_recycled_ && !found_before && report_.entries_after == 0) forget();
    if (first) compare(name, batch_at(data, *first), batch_at(data, last));
    const auto whole = whole_.find(name);
    if (whole == whole_.end()) return;
    // Cut off between two commits, or zeros from there on, which looks like a log that ends there.
    if (!found_ && !whole->second.is_of(data)) {
      found_ = true;
      report_.cut = {name, end_, data.size() - end_, {}};
      report_.unreadable.push_back({name, end_, data.size() - end_});
    }
    report_.was_whole |= found_;
  }

  // Between two files. An end that was cut off is for RocksDB to judge where other files follow:
  // its manifest knows whether the log is of use yet. A commit that the disk refused leaves such an
  // end, and the store goes on in a file of its own.
  void next_file() {
    if (found_ && report_.entries_after == 0 && !report_.was_whole) forget();
  }

  // The beginning of a sentence, if the files are not all of one store.
  const std::string& mixed() const { return mixed_; }
  // The same, if an entry is of a type that this version knows nothing of.
  const std::string& unknown() const { return unknown_; }
  bool is_compressed() const { return is_compressed_; }

  void finish() {
    if (!found_) return;
    const bool damaged = report_.entries_after > 0 || report_.was_whole;
    report_.state = damaged ? LogState::kDamaged : LogState::kCutOff;
  }

 private:
  void forget() {
    found_ = false;
    report_ = {};
  }

  LoggedBatch batch_at(const std::string& data, std::size_t at) const {
    return {data, at, is_compressed_};
  }

  // Zeros to the block's end that no fragment would have fitted into: the header of a recycled log,
  // or what stands aside, which is never split.
  bool is_trailer(const std::string& data, std::size_t at, std::size_t left, bool within) const {
    const std::size_t end = at + left;
    if (end > data.size() || data.find_first_not_of('\0', at) < end) return false;
    if (is_recycled_ && left < kHeader + kLogNumber) return true;
    if (within) return false;
    const auto next = header_at(data, end);
    return next && next->kind() == Kind::kAside && next->bytes() > left &&
           is_undamaged(data, end, *next);
  }

  // Of the log that the file was before.
  static bool is_leftover(const std::string& name, const std::string& data, std::size_t at,
                          const Fragment& fragment) {
    return is_recyclable(fragment.type) &&
           little(data, at + kHeader, kLogNumber) != (number_of(name) & 0xFFFF'FFFF);
  }

  // While it is searched for where entries go on, the parts of entries are all that counts: among
  // all types, random bytes would look like one too often.
  bool is_chance(const Fragment& fragment) const {
    return stretch_ && fragment.kind() >= Kind::kCompression;
  }

  void damaged(const std::string& name, const std::string& data, std::size_t at) {
    if (at >= end_) return;
    if (!stretch_) stretch_ = at;
    if (found_) return;
    found_ = true;
    const LoggedBatch::Ranges ranges = batch_at(data, at).ranges();
    std::string text;
    for (const auto& [job, range] : ranges) {
      text += text.empty() ? "" : ", ";
      text += range.first == range.second ? "record " + std::to_string(range.first)
                                          : "records " + std::to_string(range.first) + " to " +
                                                std::to_string(range.second);
      text += " of job #" + std::to_string(job);
    }
    report_.cut = {name, at, data.size() - at, std::move(text)};
    look_at(ranges);
  }

  // A commit that the disk refused, the last one of its log, may have given its numbers to the next
  // log's first one.
  void compare(const std::string& name, const LoggedBatch& first, const LoggedBatch& last) {
    if (mixed_.empty() && first.number() && *first.number() < latest_) {
      mixed_ = "its log " + name + " begins with write " + std::to_string(*first.number()) +
               ", but " + before_ + ", before it, goes on to write " + std::to_string(latest_);
    }
    if (!last.number() || *last.number() < latest_) return;
    latest_ = *last.number();
    before_ = name;
  }

  void end_stretch(const std::string& name, std::size_t end) {
    if (!stretch_) return;
    report_.unreadable.push_back({name, *stretch_, end - *stretch_});
    stretch_.reset();
  }

  void look_at(const LoggedBatch::Ranges& ranges) {
    for (const auto& [job, range] : ranges) {
      Sequence& latest = report_.latest[job];
      latest = std::max(latest, range.second);
    }
  }

  LogReport& report_;
  const Note whole_;  // the files as they once were
  const OnWhole on_whole_;
  bool found_ = false;
  bool is_recycled_ = false;            // the file at hand
  bool is_compressed_ = false;          // likewise
  std::optional<std::size_t> stretch_;  // where what cannot be read begins
  std::size_t end_ = 0;                 // of what was written to the file at hand
  std::uint64_t latest_ = 0;            // the number of the latest whole entry
  std::string before_;                  // where that is
  std::string mixed_;
  std::string unknown_;
};

// Of a log by itself.
struct LogContent {
  bool is_whole = false;
  bool is_used = false;  // it has writes
};

LogContent content_of(const std::string& name, const std::string& data) {
  LogReport report;
  LogContent content;
  Examination examination(report, {},
                          [&](const LoggedBatch& entry) { content.is_used |= entry.has_writes(); });
  examination.file(name, data);
  examination.finish();
  content.is_whole = report.state == LogState::kWhole;
  return content;
}

}  // namespace

bool note_files(rocksdb::Env* env, const std::string& path) {
  std::string sizes;
  const auto is_noted = [](const std::string& name) {
    return is_log(name) || is_manifest(name) || is_table(name);
  };
  for (const std::string& name : files(env, path, is_noted)) {
    const std::string file = path + "/" + name;
    if (is_table(name)) {
      std::uint64_t bytes = 0;
      if (!env->GetFileSize(file, &bytes).ok()) return false;
      sizes += name + " " + std::to_string(bytes) + "\n";
      continue;
    }
    std::string data;
    if (!rocksdb::ReadFileToString(env, file, &data).ok()) return false;
    // A log that ends in a commit which the disk refused never was whole.
    if (is_log(name) && !content_of(name, data).is_whole) continue;
    sizes += note_line(name, data);
  }
  return write_note(env, path + kClosedNote, sizes).ok();
}

bool note_while_open(rocksdb::Env* env, const std::string& path) {
  const std::string name = current_manifest(env, path);
  const std::string manifest = path + "/" + name;
  std::string data;
  if (name.empty() || !rocksdb::ReadFileToString(env, manifest, &data).ok()) return false;
  // Another thread of RocksDB's may have written them just now.
  rocksdb::EnvOptions plain;
  plain.use_mmap_writes = false;
  std::unique_ptr<rocksdb::WritableFile> file;
  if (!env->ReopenWritableFile(manifest, &file, plain).ok() || !file->Sync().ok()) return false;
  file->Close().PermitUncheckedError();
  const std::string note = path + kOpenNote;
  std::string sizes = note_line(name, data);
  if (const auto logs = files(env, path, is_log); !logs.empty()) sizes += logs.back() + " 0\n";
  return write_note(env, note + ".new", sizes).ok() && env->RenameFile(note + ".new", note).ok();
}

std::vector<std::string> missing_files(rocksdb::Env* env, const std::string& path) {
  if (env->FileExists(path + "/CURRENT").IsNotFound()) {
    // A first start that a crash has cut off leaves manifests, and a log with nothing in it.
    const auto of_a_store = [&](const std::string& name) {
      std::uint64_t bytes = 0;
      return is_table(name) || name == kClosedNote + 1 || name == kOpenNote + 1 ||
             (is_log(name) && (!env->GetFileSize(path + "/" + name, &bytes).ok() || bytes > 0));
    };
    const auto found = files(env, path, of_a_store);
    if (found.empty()) return {};
    return {"its file CURRENT is missing, while " + found.front() +
            (found.size() == 1 ? " is" : " and " + std::to_string(found.size() - 1) + " more are") +
            " there"};
  }
  std::vector<std::string> missing;
  const std::string current = current_manifest(env, path);
  const auto compare = [&](const std::string& name, const Noted& noted, const char* when) {
    const std::string differs = difference(env, path, name, noted);
    if (!differs.empty()) missing.push_back(differs + when);
  };
  // Later than the other one where it is of the manifest that counts, and knows all files.
  if (const Note closed = read_note(env, path + kClosedNote); closed.contains(current)) {
    for (const auto& [name, noted] : closed) {
      if (env->FileExists(path + "/" + name).IsNotFound()) {
        missing.push_back("its file " + name +
                          ", which was there when it was closed in good order, is missing");
      } else {
        compare(name, noted, "it had when the store was closed in good order");
      }
    }
    return missing;
  }
  const Note open = read_note(env, path + kOpenNote);
  if (!open.contains(current)) return missing;
  compare(current, open.at(current), "were on the disk");
  const auto latest =
      std::find_if(open.begin(), open.end(), [](const auto& one) { return is_log(one.first); });
  const auto logs = files(env, path, is_log);
  if (latest != open.end() && (logs.empty() || by_number(logs.back(), latest->first))) {
    missing.push_back("its log " + latest->first + ", or a later one, is missing");
  }
  return missing;
}

void clear_for_first_start(rocksdb::Env* env, const std::string& path) {
  if (!env->FileExists(path + "/CURRENT").IsNotFound()) return;
  if (!missing_files(env, path).empty()) return;
  for (const std::string& name : files(env, path, is_log)) {
    std::uint64_t bytes = 0;
    const bool empty = env->GetFileSize(path + "/" + name, &bytes).ok() && bytes == 0;
    if (empty) env->DeleteFile(path + "/" + name).PermitUncheckedError();
  }
}

std::vector<std::string> table_files(rocksdb::Env* env, const std::string& path) {
  return files(env, path, is_table);
}

void read_log(rocksdb::Env* env, const std::string& path,
              const std::function<void(const LoggedWrite&)>& take,
              std::vector<std::string>& unreadable) {
  LogReport report;
  Examination examination(report, {}, [&](LoggedBatch&& entry) {
    entry.each([&](const LoggedWrite& write, bool whole) {
      if (whole) take(write);
    });
  });
  for (const std::string& name : files(env, path, is_log)) {
    std::string data;
    const rocksdb::Status status = rocksdb::ReadFileToString(env, path + "/" + name, &data);
    if (!status.ok()) {
      unreadable.push_back(name + ": " + status.ToString());
      continue;
    }
    examination.file(name, data);
    if (examination.is_compressed()) unreadable.push_back(name + ": its entries are compressed");
  }
}

bool examine_log(rocksdb::Env* env, const std::string& path, LogReport& report,
                 std::string& error) {
  report = {};
  const Note closed = read_note(env, path + kClosedNote);
  const bool is_closed = closed.contains(current_manifest(env, path));
  Examination examination(report, closed);
  std::string mixed;
  for (const std::string& name : files(env, path, is_log)) {
    std::string data;
    const rocksdb::Status status = rocksdb::ReadFileToString(env, path + "/" + name, &data);
    // Of a store that a daemon has open, it may have gone meanwhile: its records are in a table
    // file.
    if (!status.ok() && env->FileExists(path + "/" + name).IsNotFound()) continue;
    if (!status.ok()) {
      error = "store " + path + ": its log " + name + " cannot be read: " + status.ToString();
      return false;
    }
    examination.next_file();
    examination.file(name, data);
    // Logs that are not whole are not in the note. While it opens a store, RocksDB writes nothing
    // to its new log.
    if (!is_closed || closed.contains(name)) continue;
    if (const LogContent content = content_of(name, data); content.is_whole && content.is_used) {
      mixed = "its log " + name + " is none of those which it had when it was closed in good order";
    }
  }
  examination.finish();
  if (!examination.unknown().empty()) {
    error = "store " + path + ": " + examination.unknown() +
            ", which this version does not know: use the version that wrote it, or a newer one";
    return false;
  }
  if (mixed.empty()) mixed = examination.mixed();
  if (mixed.empty()) return true;
  error = "store " + path + " has a log of another store, or one twice: " + mixed +
          "; move the one that does not belong there to another directory";
  return false;
}

}  // namespace syncd::store
