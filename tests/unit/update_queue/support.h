// Memory and recognizable updates for the tests of the update queue.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "libclient/update_queue.h"

namespace syncd::client {

using Read = UpdateQueue::Read;
using Written = UpdateQueue::Written;

// Zeroed memory that a forked child shares.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(data_, bytes_); }

  void* data() { return data_; }
  std::byte* begin() { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

// An update whose every number tells its iteration and its place.
inline float element(std::int64_t iteration, std::size_t place) {
  return static_cast<float>((iteration * 131 + static_cast<std::int64_t>(place)) % 16'000'000);
}
inline void fill(std::vector<float>& update, std::int64_t iteration) {
  for (std::size_t i = 0; i < update.size(); ++i) update[i] = element(iteration, i);
}
inline bool is_whole(const std::vector<float>& update, std::int64_t iteration) {
  for (std::size_t i = 0; i < update.size(); ++i) {
    if (update[i] != element(iteration, i)) return false;
  }
  return true;
}

struct Queue {
  explicit Queue(const UpdateQueueShape& shape)
      : memory(UpdateQueue::bytes_needed(shape).value()), out(shape.payload_bytes / sizeof(float)) {
    std::string error;
    made = UpdateQueue::create(memory.data(), memory.bytes(), shape, error);
    EXPECT_TRUE(made) << error;
  }
  Written write(std::uint32_t edge, std::int64_t iteration) {
    std::vector<float> update(out.size());
    fill(update, iteration);
    return made->write(edge, iteration, std::span(update));
  }
  Read read(std::uint32_t edge, std::int64_t iteration) {
    const Read answer = made->read(edge, iteration, std::span(out));
    EXPECT_TRUE(answer != Read::kOk || is_whole(out, iteration)) << iteration;
    return answer;
  }

  SharedMemory memory;
  std::vector<float> out;
  std::optional<UpdateQueue> made;
};

}  // namespace syncd::client
