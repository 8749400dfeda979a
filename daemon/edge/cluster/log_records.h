// A batch of the store as the bytes of a log entry, and back: records one after the other, each as
// the store has it (store/record_codec.h). Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/record.h"
#include "daemon/edge/store/record_codec.h"

namespace syncd::cluster {

std::string encode_records(const std::vector<Record>& records, store::RecordEncoder& encoder);
// False, with a sentence in `error`: the bytes are damaged or of a newer format.
bool decode_records(std::string_view bytes, std::vector<Record>& records, std::string& error);

std::string encode_snapshot(const JobSnapshot& snapshot, store::RecordEncoder& encoder);
bool decode_snapshot(std::string_view bytes, JobSnapshot& snapshot, std::string& error);

}  // namespace syncd::cluster
