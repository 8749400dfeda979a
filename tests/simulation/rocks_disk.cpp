// See rocks_disk.h.
#include "rocks_disk.h"

#include <rocksdb/file_system.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace syncd::simulation {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

struct Inode {
  std::string data;
  std::size_t durable = 0;  // bytes that a power cut leaves
  bool doubtful = false;    // a sync failed: `durable` stays as it is
};
using Files = std::map<std::string, std::shared_ptr<Inode>>;

// A change to a directory that is not synced; null: the file is gone.
struct Change {
  std::string directory;
  std::vector<std::pair<std::string, std::shared_ptr<Inode>>> files;
  std::uint64_t number = 0;  // in the order in which they were made
};

std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// "/a//b/" is "/a/b".
std::string clean(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (c != '/' || out.empty() || out.back() != '/') out += c;
  }
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

IOStatus missing(const std::string& path) {
  return IOStatus::PathNotFound("no such file", path);
}

}  // namespace

struct RocksDisk::State {
  State(std::uint64_t seed, std::function<void()> on_cut)
      : random(seed), on_cut(std::move(on_cut)) {}

  mutable std::mutex mutex;
  std::condition_variable held_or_cut;
  test::Random random;
  std::function<void()> on_cut;
  Faults faults;
  std::uint64_t operations = 0;
  std::uint64_t errors = 0;
  bool cut = false;
  bool held = false;
  Files files;
  Files durable;
  std::vector<Change> changes;
  std::uint64_t changes_made = 0;
  std::map<std::string, std::uint64_t> decided;  // the number of the last change in `durable`
  std::set<std::string> directories;
  std::set<std::string> locks;
  std::map<std::string, std::uint64_t> counts;

  // ---- with the mutex held

  IOStatus off() const { return IOStatus::IOError("the power is off"); }

  // Before an operation that writes, syncs, or changes a directory.
  IOStatus begin(const char* what, bool takes_room) {
    if (cut) return off();
    ++operations;
    if (operations == faults.cut_at) {
      cut = true;
      ++counts[std::string("cut at ") + what];
      held_or_cut.notify_all();
      on_cut();
      return off();
    }
    if (takes_room && operations >= faults.full_from && operations < faults.full_until) {
      ++errors;
      ++counts["disk full"];
      IOStatus full = IOStatus::NoSpace("no space left on device");
      full.SetRetryable(true);  // as RocksDB's own file system has it
      return full;
    }
    if (operations >= faults.fail_from && operations < faults.fail_until &&
        random.one_in(faults.fail_one_in)) {
      ++errors;
      ++counts[std::string("failed ") + what];
      return IOStatus::IOError(std::string("injected: ") + what);
    }
    return IOStatus::OK();
  }

  IOStatus append(Inode& inode, const Slice& bytes) {
    const IOStatus status = begin("append", true);
    // One that fails may have written some of it.
    const std::size_t written = status.ok()               ? bytes.size()
                                : cut || random.one_in(2) ? random.below(bytes.size() + 1)
                                                          : 0;
    if (!status.ok() && written > 0) ++counts["partial append"];
    inode.data.append(bytes.data(), written);
    return status;
  }

  IOStatus sync(std::unique_lock<std::mutex>& lock, Inode& inode) {
    if (held) ++counts["slow sync"];
    held_or_cut.wait(lock, [this] { return !held || cut; });
    const std::size_t size = inode.data.size();
    const IOStatus status = begin("sync", false);
    if (!status.ok()) {
      // What was there before stays there.
      if (!cut && size > inode.durable) inode.doubtful = true;
      return status;
    }
    ++counts["sync"];
    if (inode.doubtful) return status;
    inode.durable = size;
    keep_changes([&](const Change& change) {
      return std::any_of(change.files.begin(), change.files.end(), [&](const auto& file) {
        return file.second.get() == &inode || (change.files.size() == 1 && file.second == nullptr);
      });
    });
    return status;
  }

  IOStatus change(const char* what, bool takes_room, Change change) {
    const IOStatus status = begin(what, takes_room);
    if (!status.ok()) return status;
    for (auto& [path, inode] : change.files) set(files, path, inode);
    change.number = ++changes_made;
    changes.push_back(std::move(change));
    return status;
  }

  IOStatus sync_directory(const std::string& directory) {
    const IOStatus status = begin("directory sync", false);
    if (!status.ok()) return status;
    keep_changes([&](const Change& change) { return change.directory == directory; });
    return status;
  }

  static void set(Files& in, const std::string& path, const std::shared_ptr<Inode>& inode) {
    if (inode == nullptr) {
      in.erase(path);
    } else {
      in[path] = inode;
    }
  }
  template <class Which>
  void keep_changes(Which which) {
    std::erase_if(changes, [&](const Change& change) {
      if (!which(change)) return false;
      apply(change);
      return true;
    });
  }
  // One that was made before another of the same name comes too late.
  void apply(const Change& change) {
    for (const auto& [path, inode] : change.files) {
      std::uint64_t& last = decided[path];
      if (change.number < last) continue;
      last = change.number;
      set(durable, path, inode);
    }
  }

  void lose_what_was_not_synced() {
    const std::uint64_t how = random.below(4);  // none, all, the first ones, any of them
    const std::size_t first = random.below(changes.size() + 1);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const bool stays = how == 1 || (how == 2 && i < first) || (how == 3 && random.one_in(2));
      if (stays) apply(changes[i]);
      if (!stays) ++counts["lost change of a directory"];
    }
    changes.clear();
    files = durable;
    for (const auto& [path, inode] : files) {
      if (inode->data.size() > inode->durable) {
        const std::size_t unsynced = inode->data.size() - inode->durable;
        const std::uint64_t kept = random.below(3);
        const std::size_t left = kept == 0 ? 0 : kept == 1 ? unsynced : random.below(unsynced + 1);
        if (left < unsynced) ++counts[left == 0 ? "lost bytes" : "torn file"];
        inode->data.resize(inode->durable + left);
      }
      inode->durable = inode->data.size();
      inode->doubtful = false;
    }
  }

  void begin_anew(const Faults& next) {
    faults = next;
    operations = 0;
    errors = 0;
    cut = false;
    held = false;
    locks.clear();
  }
};

namespace {

using State = RocksDisk::State;
using StatePtr = std::shared_ptr<State>;
using InodePtr = std::shared_ptr<Inode>;

// Copies what there is of [offset, offset + n).
IOStatus read_at(const State& state, const Inode& inode, std::uint64_t offset, std::size_t n,
                 Slice* result, char* scratch) {
  const std::lock_guard lock(state.mutex);
  if (state.cut) return state.off();
  const std::size_t from = std::min<std::size_t>(offset, inode.data.size());
  const std::size_t count = std::min(n, inode.data.size() - from);
  if (count > 0) std::memcpy(scratch, inode.data.data() + from, count);
  *result = Slice(scratch, count);
  return IOStatus::OK();
}

class SequentialFile final : public rocksdb::FSSequentialFile {
 public:
  SequentialFile(StatePtr state, InodePtr inode)
      : state_(std::move(state)), inode_(std::move(inode)) {}
  IOStatus Read(std::size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) override {
    const IOStatus status = read_at(*state_, *inode_, offset_, n, result, scratch);
    if (status.ok()) offset_ += result->size();
    return status;
  }
  IOStatus Skip(std::uint64_t n) override {
    offset_ += n;
    return IOStatus::OK();
  }

 private:
  StatePtr state_;
  InodePtr inode_;
  std::uint64_t offset_ = 0;
};

class RandomAccessFile final : public rocksdb::FSRandomAccessFile {
 public:
  RandomAccessFile(StatePtr state, InodePtr inode)
      : state_(std::move(state)), inode_(std::move(inode)) {}
  IOStatus Read(std::uint64_t offset, std::size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    return read_at(*state_, *inode_, offset, n, result, scratch);
  }

 private:
  StatePtr state_;
  InodePtr inode_;
};

class WritableFile final : public rocksdb::FSWritableFile {
 public:
  WritableFile(StatePtr state, InodePtr inode)
      : state_(std::move(state)), inode_(std::move(inode)) {}
  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    return state_->append(*inode_, data);
  }
  IOStatus Append(const Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo&,
                  IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions&, IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    const IOStatus status = state_->begin("truncate", false);
    if (status.ok() && size < inode_->data.size()) {
      inode_->data.resize(size);
      inode_->durable = std::min<std::size_t>(inode_->durable, size);
    }
    return status;
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    return state_->cut ? state_->off() : IOStatus::OK();
  }
  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override {
    std::unique_lock lock(state_->mutex);
    return state_->sync(lock, *inode_);
  }
  bool IsSyncThreadSafe() const override { return true; }
  std::uint64_t GetFileSize(const IOOptions&, IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    return inode_->data.size();
  }

 private:
  StatePtr state_;
  InodePtr inode_;
};

class Directory final : public rocksdb::FSDirectory {
 public:
  Directory(StatePtr state, std::string path) : state_(std::move(state)), path_(std::move(path)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    return state_->sync_directory(path_);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  StatePtr state_;
  std::string path_;
};

class Lock final : public rocksdb::FileLock {
 public:
  explicit Lock(std::string path) : path(std::move(path)) {}
  const std::string path;
};

class FileSystem final : public rocksdb::FileSystem {
 public:
  explicit FileSystem(StatePtr state) : state_(std::move(state)) {}
  const char* Name() const override { return "syncd::simulation::RocksDisk"; }

  IOStatus NewSequentialFile(const std::string& name, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                             IODebugContext*) override {
    return open<SequentialFile>(name, result);
  }
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions&,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override {
    return open<RandomAccessFile>(name, result);
  }
  IOStatus NewWritableFile(const std::string& name, const FileOptions&,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext*) override {
    const std::string path = clean(name);
    const std::lock_guard lock(state_->mutex);
    auto inode = std::make_shared<Inode>();
    const IOStatus status = state_->change("create", true, {directory_of(path), {{path, inode}}});
    if (status.ok()) *result = std::make_unique<WritableFile>(state_, std::move(inode));
    return status;
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions&,
                              std::unique_ptr<rocksdb::FSWritableFile>* result,
                              IODebugContext*) override {
    return open<WritableFile>(name, result);
  }
  IOStatus NewDirectory(const std::string& name, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) override {
    const std::string path = clean(name);
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    if (!state_->directories.contains(path)) return missing(path);
    *result = std::make_unique<Directory>(state_, path);
    return IOStatus::OK();
  }
  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override {
    const std::string path = clean(name);
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    const bool found = state_->files.contains(path) || state_->directories.contains(path);
    return found ? IOStatus::OK() : IOStatus::NotFound();
  }
  IOStatus GetChildren(const std::string& name, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    const std::string path = clean(name);
    const std::lock_guard lock(state_->mutex);
    result->clear();
    if (state_->cut) return state_->off();
    if (!state_->directories.contains(path)) return missing(path);
    const auto add = [&](const std::string& child) {
      if (child != path && directory_of(child) == path)
        result->push_back(child.substr(path.size() + 1));
    };
    for (const auto& [child, inode] : state_->files) add(child);
    for (const std::string& child : state_->directories) add(child);
    return IOStatus::OK();
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override {
    const std::string path = clean(name);
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    if (!state_->files.contains(path)) return missing(path);
    return state_->change("delete", false, {directory_of(path), {{path, nullptr}}});
  }
  // Directories are there at once, and for good.
  IOStatus CreateDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    return state_->directories.insert(clean(name)).second
               ? IOStatus::OK()
               : IOStatus::IOError("it is there already");
  }
  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions& options,
                              IODebugContext* debug) override {
    const IOStatus status = CreateDir(name, options, debug);
    const std::lock_guard lock(state_->mutex);
    return state_->cut ? status : IOStatus::OK();
  }
  IOStatus DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    return state_->directories.erase(clean(name)) == 1 ? IOStatus::OK() : missing(name);
  }
  IOStatus GetFileSize(const std::string& name, const IOOptions&, std::uint64_t* size,
                       IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    const auto found = state_->files.find(clean(name));
    if (found == state_->files.end()) return missing(name);
    *size = found->second->data.size();
    return IOStatus::OK();
  }
  IOStatus GetFileModificationTime(const std::string&, const IOOptions&, std::uint64_t* time,
                                   IODebugContext*) override {
    *time = 1;
    return IOStatus::OK();
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    const std::string source = clean(from);
    const std::string target = clean(to);
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    const auto found = state_->files.find(source);
    if (found == state_->files.end()) return missing(source);
    const InodePtr inode = found->second;
    return state_->change("rename", false,
                          {directory_of(target), {{target, inode}, {source, nullptr}}});
  }
  IOStatus LockFile(const std::string& name, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    const std::string path = clean(name);
    const std::lock_guard guard(state_->mutex);
    if (state_->cut) return state_->off();
    if (!state_->locks.insert(path).second) return IOStatus::IOError("While lock file", path);
    *lock = new Lock(path);
    return IOStatus::OK();
  }
  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    const std::unique_ptr<Lock> ours(static_cast<Lock*>(lock));
    const std::lock_guard guard(state_->mutex);
    state_->locks.erase(ours->path);
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions&, std::string*, IODebugContext*) override {
    return IOStatus::NotSupported("GetTestDirectory");
  }
  IOStatus NewLogger(const std::string&, const IOOptions&, std::shared_ptr<rocksdb::Logger>*,
                     IODebugContext*) override {
    return IOStatus::NotSupported("NewLogger");
  }
  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* result,
                           IODebugContext*) override {
    *result = clean(path);
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& name, const IOOptions&, bool* result,
                       IODebugContext*) override {
    const std::lock_guard lock(state_->mutex);
    *result = state_->directories.contains(clean(name));
    return IOStatus::OK();
  }

 private:
  template <class File, class Result>
  IOStatus open(const std::string& name, std::unique_ptr<Result>* result) {
    const std::lock_guard lock(state_->mutex);
    if (state_->cut) return state_->off();
    const auto found = state_->files.find(clean(name));
    if (found == state_->files.end()) return missing(name);
    *result = std::make_unique<File>(state_, found->second);
    return IOStatus::OK();
  }

  StatePtr state_;
};

}  // namespace

RocksDisk::RocksDisk(std::uint64_t seed, std::function<void()> on_cut)
    : state_(std::make_shared<State>(seed, std::move(on_cut))),
      env_(rocksdb::NewCompositeEnv(std::make_shared<FileSystem>(state_))) {}
RocksDisk::~RocksDisk() = default;

rocksdb::Env* RocksDisk::env() {
  return env_.get();
}

void RocksDisk::power_on(const Faults& faults) {
  const std::lock_guard lock(state_->mutex);
  state_->lose_what_was_not_synced();
  state_->begin_anew(faults);
}

void RocksDisk::restart(const Faults& faults) {
  const std::lock_guard lock(state_->mutex);
  state_->begin_anew(faults);
}

bool RocksDisk::is_cut() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cut;
}

void RocksDisk::cut() {
  const std::lock_guard lock(state_->mutex);
  state_->cut = true;
  state_->held_or_cut.notify_all();
}

std::uint64_t RocksDisk::errors() const {
  const std::lock_guard lock(state_->mutex);
  return state_->errors;
}

void RocksDisk::hold_syncs(bool held) {
  const std::lock_guard lock(state_->mutex);
  state_->held = held;
  state_->held_or_cut.notify_all();
}

const std::map<std::string, std::uint64_t>& RocksDisk::counts() const {
  return state_->counts;
}

}  // namespace syncd::simulation
