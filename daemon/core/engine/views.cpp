// See views.h.
#include "daemon/core/engine/views.h"

#include <fmt/core.h>

#include <algorithm>

#include "daemon/core/engine/limits.h"

namespace syncd {
namespace {

std::string check_members(std::uint64_t number, const std::vector<ViewMember>& members) {
  if (number == 0 || number > static_cast<std::uint64_t>(limits::kStoredMax)) {
    return fmt::format("view {} has an impossible number", number);
  }
  if (members.empty()) return fmt::format("view {} has no members", number);
  for (const ViewMember& member : members) {
    if (member.rank >= limits::kWorkersPerJobMax) {
      return fmt::format("view {} has a member of rank {}, which is impossible", number,
                         member.rank);
    }
  }
  return {};
}

}  // namespace

const View* Views::find(std::uint64_t number) const {
  const auto it = std::find_if(kept_.begin(), kept_.end(),
                               [&](const View& view) { return view.number == number; });
  return it == kept_.end() ? nullptr : &*it;
}

wire::ViewReply Views::page(const View& view, std::uint32_t first_rank) {
  wire::ViewReply reply;
  reply.view = view.number;
  reply.size = static_cast<std::uint32_t>(view.members.size());
  reply.reason = view.reason;
  std::size_t bytes = reply.reason.size();
  for (std::uint32_t rank = first_rank; rank < reply.size; ++rank) {
    const ViewMember& member = view.members[rank];
    bytes += 64 + member.name.size() + member.host.size() + member.data.size();
    if (bytes > limits::kHistoryReplyBytesMax && !reply.members.empty()) {
      reply.next_rank = rank;
      break;
    }
    reply.members.push_back({rank, member.name, member.host, member.data});
  }
  return reply;
}

std::string Views::kept() const {
  if (kept_.empty()) return "there is none yet";
  if (kept_.size() == 1) return fmt::format("view {} is kept", kept_.front().number);
  return fmt::format("views {} and {} are kept", kept_.front().number, kept_.back().number);
}

std::string Views::check(const Record& record) const {
  const auto number = static_cast<std::uint64_t>(record.iteration);
  if (latest() != nullptr && number <= latest()->number) {
    return fmt::format("view {} comes after view {}", record.iteration, latest()->number);
  }
  return check_members(record.iteration < 0 ? 0 : number, record.members);
}

const View& Views::apply(const Record& record) {
  if (kept_.size() == kKept) kept_.pop_front();
  return kept_.emplace_back(
      View{static_cast<std::uint64_t>(record.iteration), record.reason, record.members});
}

std::string Views::restore(const JobSnapshot& snapshot) {
  kept_.clear();
  if (snapshot.views.size() > kKept) {
    return fmt::format("its snapshot has {} views", snapshot.views.size());
  }
  for (const View& view : snapshot.views) {
    if (std::string wrong = check_members(view.number, view.members); !wrong.empty()) {
      return "its snapshot's " + wrong;
    }
    if (latest() != nullptr && view.number <= latest()->number) {
      return "its snapshot's views are out of order";
    }
    kept_.push_back(view);
  }
  return {};
}

}  // namespace syncd
