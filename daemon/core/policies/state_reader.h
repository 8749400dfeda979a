// Reads a policy's saved state back, number by number: whatever does not fit makes ok() false, and
// nothing is read beyond the end. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

namespace syncd {

class StateReader {
 public:
  explicit StateReader(std::span<const std::int64_t> state) : rest_(state) {}

  // The next number, which must lie within [lowest, highest]; else `lowest`.
  std::int64_t next(std::int64_t lowest = INT64_MIN, std::int64_t highest = INT64_MAX) {
    if (rest_.empty() || rest_[0] < lowest || rest_[0] > highest) {
      ok_ = false;
      return lowest;
    }
    const std::int64_t value = rest_[0];
    rest_ = rest_.subspan(1);
    return value;
  }

  // The next `count` numbers; none if there are not so many.
  std::span<const std::int64_t> take(std::int64_t count) {
    if (count < 0 || static_cast<std::uint64_t>(count) > rest_.size()) {
      ok_ = false;
      return {};
    }
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  bool ok() const { return ok_; }
  void fail() { ok_ = false; }  // a number that was read fits nowhere
  std::int64_t left() const { return static_cast<std::int64_t>(rest_.size()); }
  bool at_end() const { return rest_.empty(); }

 private:
  std::span<const std::int64_t> rest_;
  bool ok_ = true;
};

}  // namespace syncd
