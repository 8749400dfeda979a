// See model_etcd.h.
#include "tests/support/model_etcd.h"

#include <algorithm>
#include <vector>

namespace syncd::test {

using cluster::Answer;
using cluster::Op;

namespace {

constexpr std::size_t kOpsMax = 128;
constexpr std::size_t kBytesMax = 1536 * 1024;

bool is_put(const Op& op) {
  return op.kind == Op::Kind::kPut || op.kind == Op::Kind::kPutOnLease;
}

bool covers(const Op& op, const std::string& key) {
  return op.end.empty() ? key == op.key : key >= op.key && key < op.end;
}

// etcd looks at both branches before it looks at the comparisons.
bool is_valid(const std::vector<Op>& ops) {
  std::size_t bytes = 0;
  for (const Op& put : ops) {
    bytes += put.key.size() + put.value.size();
    for (const Op& other : ops) {
      const bool changes = is_put(other) || other.kind == Op::Kind::kDelete;
      if (is_put(put) && changes && &other != &put && covers(other, put.key)) return false;
    }
  }
  return ops.size() <= kOpsMax && bytes <= kBytesMax;
}

}  // namespace

bool ModelEtcd::holds(const cluster::Compare& compare) const {
  const Item* item = find(compare.key);
  if (compare.value) return item != nullptr && item->value == *compare.value;
  return (item == nullptr ? 0 : item->created) == compare.revision;
}

Answer ModelEtcd::apply(const cluster::Transaction& transaction, LeaseId lease) {
  if (!is_valid(transaction.then) || !is_valid(transaction.otherwise)) {
    return {Answer::Kind::kRefused, revision_};
  }
  const bool all = std::ranges::all_of(transaction.compares,
                                       [this](const auto& compare) { return holds(compare); });
  const std::vector<Op>& ops = all ? transaction.then : transaction.otherwise;
  for (const Op& op : ops) {
    if (op.kind == Op::Kind::kPutOnLease && !leases_.contains(lease)) return {};
  }
  const bool changes =
      std::ranges::any_of(ops, [](const Op& op) { return op.kind != Op::Kind::kGet; });
  if (changes) ++revision_;
  Answer answer{all ? Answer::Kind::kThen : Answer::Kind::kElse, revision_};
  for (const Op& op : ops) {
    if (is_put(op)) {
      Item& item = items_[op.key];
      if (item.created == 0) item.created = revision_;
      item.value = op.value;
      item.lease = op.kind == Op::Kind::kPutOnLease ? lease : 0;
      continue;
    }
    auto at = items_.lower_bound(op.key);
    while (at != items_.end() && covers(op, at->first)) {
      if (op.kind == Op::Kind::kDelete) {
        at = items_.erase(at);
      } else {
        answer.got.push_back({at->first, at->second.value, at->second.created});
        ++at;
      }
    }
  }
  if (changes && on_change) on_change();
  return answer;
}

Micros ModelEtcd::keep_alive(LeaseId lease, Micros now) {
  expire(now);
  const auto at = leases_.find(lease);
  if (at == leases_.end()) return 0;
  at->second.ends = now + at->second.ttl;
  return at->second.ttl;
}

void ModelEtcd::expire(Micros now) {
  std::vector<LeaseId> over;
  for (const auto& [id, lease] : leases_) {
    if (lease.ends <= now) over.push_back(id);
  }
  for (const LeaseId id : over) revoke(id);
}

void ModelEtcd::revoke(LeaseId lease) {
  if (leases_.erase(lease) == 0) return;
  ++revision_;
  std::erase_if(items_, [lease](const auto& item) { return item.second.lease == lease; });
  if (on_change) on_change();
}

}  // namespace syncd::test
