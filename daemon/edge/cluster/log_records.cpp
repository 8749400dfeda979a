// See log_records.h.
#include "daemon/edge/cluster/log_records.h"

#include <cstdint>
#include <span>

namespace syncd::cluster {
namespace {

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::string encode_records(const std::vector<Record>& records, store::RecordEncoder& encoder) {
  std::string bytes;
  for (const Record& record : records) bytes += text_of(encoder.encode(record));
  return bytes;
}

bool decode_records(std::string_view bytes, std::vector<Record>& records, std::string& error) {
  while (!bytes.empty()) {
    const std::size_t size = store::record_bytes(bytes_of(bytes));
    if (size == 0) {
      error = "a record is cut off";
      return false;
    }
    if (!store::decode_record(bytes_of(bytes.substr(0, size)), records.emplace_back(), error)) {
      return false;
    }
    bytes.remove_prefix(size);
  }
  return true;
}

std::string encode_snapshot(const JobSnapshot& snapshot, store::RecordEncoder& encoder) {
  return std::string(text_of(encoder.encode(snapshot)));
}

bool decode_snapshot(std::string_view bytes, JobSnapshot& snapshot, std::string& error) {
  return store::decode_snapshot(bytes_of(bytes), snapshot, error);
}

}  // namespace syncd::cluster
