// What records and snapshots take in memory. See store.h.
#include "daemon/edge/store/store.h"

namespace syncd::store {
namespace {

template <class... Members>
std::size_t held_bytes(const Members&... members) {
  return ((members.size() * sizeof(typename Members::value_type)) + ...);
}

std::size_t weight(const WorkerSnapshot& w) {
  return sizeof w + held_bytes(w.name, w.host, w.data, w.dismissal, w.leased_phase);
}

}  // namespace

std::size_t weight(const Record& r) {
  return sizeof r + held_bytes(r.name, r.host, r.data, r.policy, r.config, r.reason, r.values);
}

std::size_t weight(const JobSnapshot& s) {
  std::size_t bytes = sizeof s - sizeof s.created + weight(s.created) +
                      held_bytes(s.policy, s.policy_state, s.stop_reason);
  for (const WorkerSnapshot& worker : s.workers) bytes += weight(worker);
  return bytes;
}

std::size_t weight(const Batch& batch) {
  std::size_t bytes = 0;
  for (const Record& record : batch.records) bytes += weight(record);
  for (const JobSnapshot& snapshot : batch.snapshots) bytes += weight(snapshot);
  return bytes;
}

}  // namespace syncd::store
