// The latest views of a job: who goes on together, with what each showed to the others. Two are
// kept, because members may read one while the next begins. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "daemon/core/engine/record.h"
#include "daemon/core/engine/types.h"
#include "proto/wire/wire.h"

namespace syncd {

class Views {
 public:
  static constexpr std::size_t kKept = 2;

  // Null: none.
  const View* latest() const { return kept_.empty() ? nullptr : &kept_.back(); }
  const View* find(std::uint64_t number) const;
  // The page of a view from this place on.
  static wire::ViewReply page(const View& view, std::uint32_t first_rank);
  // "views 5 and 6 are kept".
  std::string kept() const;

  // ---- records
  // Empty, or why no view of this job is like that.
  std::string check(const Record& record) const;
  const View& apply(const Record& record);
  void save(JobSnapshot& out) const { out.views.assign(kept_.begin(), kept_.end()); }
  std::string restore(const JobSnapshot& snapshot);  // empty, or what is impossible in it

 private:
  std::deque<View> kept_;  // at most kKept; numbers rise
};

}  // namespace syncd
