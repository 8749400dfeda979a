// Shared arrays: see shared_arrays.h. No thread of its own. Layout: a directory (magic, count, then
// offset and length of each array), then the arrays, each on a cache line of its own.
#include "reference_trainer/data/shared_arrays.h"

#include <cstring>

namespace syncd::trainer {
namespace {

constexpr std::uint64_t kArraysMagic = 0x7379'6e63'6172'7231ULL;
constexpr std::size_t kAlignment = 64;

struct Entry {
  std::uint64_t offset;
  std::uint64_t length;
};

struct Directory {
  std::uint64_t magic;
  std::uint64_t count;
};

std::size_t aligned(std::size_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

const Directory& directory_of(std::span<const std::byte> memory) {
  return *reinterpret_cast<const Directory*>(memory.data());
}

std::span<const Entry> entries_of(std::span<const std::byte> memory) {
  return {reinterpret_cast<const Entry*>(memory.data() + sizeof(Directory)),
          directory_of(memory).count};
}

}  // namespace

SharedArrays SharedArrays::create(const std::vector<std::span<const std::byte>>& arrays) {
  std::vector<Entry> entries;
  std::size_t end = sizeof(Directory) + arrays.size() * sizeof(Entry);
  for (const auto& array : arrays) {
    entries.push_back({aligned(end), array.size()});
    end = aligned(end) + array.size();
  }
  SharedMemory memory = SharedMemory::create_large(end, "the training data");
  const Directory directory{kArraysMagic, arrays.size()};
  std::byte* base = memory.bytes().data();
  std::memcpy(base, &directory, sizeof(directory));
  std::memcpy(base + sizeof(directory), entries.data(), entries.size() * sizeof(Entry));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].empty()) continue;
    std::memcpy(base + entries[i].offset, arrays[i].data(), arrays[i].size());
  }
  return SharedArrays(std::move(memory));
}

SharedArrays SharedArrays::attach(int fd) {
  SharedMemory memory = SharedMemory::attach(fd, "the training data");
  const std::span<const std::byte> bytes = memory.bytes();
  bool valid = bytes.size() >= sizeof(Directory) && directory_of(bytes).magic == kArraysMagic &&
               directory_of(bytes).count <= (bytes.size() - sizeof(Directory)) / sizeof(Entry);
  if (valid) {
    for (const Entry& entry : entries_of(bytes)) {
      valid = valid && entry.offset <= bytes.size() && entry.length <= bytes.size() - entry.offset;
    }
  }
  if (!valid) throw SharedMemoryError("shared memory for the training data holds something else");
  return SharedArrays(std::move(memory));
}

std::span<const std::byte> SharedArrays::bytes(std::size_t place) const {
  const std::span<const Entry> entries = entries_of(memory_.bytes());
  if (place >= entries.size()) {
    throw SharedMemoryError("shared memory for the training data lacks an array");
  }
  return memory_.bytes().subspan(entries[place].offset, entries[place].length);
}

}  // namespace syncd::trainer
