// A form of events and effects that can be stored as one number: two engines did the same if their
// hashes are the same. Sentences for people are blanked, everything else counts.
//
// Blanked, so that only whether they are there counts: messages of errors and notices, the text of
// an explanation and the state of each worker in it, notes of jobs, reasons and lateness rules of
// workers, the reasons in records and snapshots of stops, losses, leaves and drains, and policy
// notes that begin with "graph: ". Other policy notes are keys that recovery reads, and they count.
// Of log lines only the number counts.
//
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/event.h"
#include "daemon/edge/store/record_codec.h"
#include "proto/wire/wire.h"

namespace syncd::test {

// FNV-1a of 64 bits.
class Fnv {
 public:
  void bytes(std::span<const std::uint8_t> bytes) {
    for (const std::uint8_t byte : bytes) value_ = (value_ ^ byte) * 0x100000001b3;
  }
  void number(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) value_ = (value_ ^ (number >> (8 * i) & 0xff)) * 0x100000001b3;
  }
  void text(std::string_view text) {
    number(text.size());
    for (const char c : text) value_ = (value_ ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

void blank(wire::Body& body);
void blank(Record& record);
void blank(JobSnapshot& snapshot);
// All of them, and the fields of the log lines.
void blank(Effects& effects);

class EffectsForm {
 public:
  void add_event(const Event& event, Micros now);
  // Something else that was done to the engine.
  void add_event(std::string_view what, std::span<const std::int64_t> numbers, Micros now);

  // `effects` must be blanked; `results` are those of its plans.
  void add_effects(const Effects& effects, const std::vector<PlanReady>& results, Micros deadline);
  void add_snapshot(const JobSnapshot& snapshot);
  void add_number(std::int64_t number) { effects_.number(static_cast<std::uint64_t>(number)); }

  std::uint64_t events() const { return events_.value(); }
  std::uint64_t effects() const { return effects_.value(); }

 private:
  void add(Fnv& hash, std::uint64_t id, const wire::Body& body);

  Fnv events_, effects_;
  wire::Encoder wire_;
  store::RecordEncoder stored_;
  std::vector<std::uint8_t> frame_;
};

}  // namespace syncd::test
