// What records and snapshots take in memory. See store.h.
#include "daemon/edge/store/record_fields.h"
#include "daemon/edge/store/store.h"

namespace syncd::store {
namespace {

// What a value holds beside its own size.
template <class T>
std::size_t held_bytes(const T& value) {
  std::size_t bytes = 0;
  if constexpr (HasFields<T>) {
    for_each_field(value, [&](auto, const auto& field) { bytes += held_bytes(field); });
  } else if constexpr (requires { value.size(); }) {
    bytes = value.size() * sizeof(value[0]);
    if constexpr (HasFields<typename T::value_type>) {
      for (const auto& item : value) bytes += held_bytes(item);
    }
  }
  return bytes;
}

}  // namespace

std::size_t weight(const Record& record) {
  return sizeof record + held_bytes(record);
}

std::size_t weight(const JobSnapshot& snapshot) {
  return sizeof snapshot + held_bytes(snapshot);
}

std::size_t weight(const Batch& batch) {
  std::size_t bytes = 0;
  for (const Record& record : batch.records) bytes += weight(record);
  for (const JobSnapshot& snapshot : batch.snapshots) bytes += weight(snapshot);
  return bytes;
}

}  // namespace syncd::store
