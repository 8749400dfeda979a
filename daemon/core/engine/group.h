// The workers of a job that begin together: which launch started them, how many they are, and
// whether the job waits for another start. One thread at a time.
//
// A job whose last active worker is lost reassembles: it waits for a whole group, as at its first
// start, so that no worker trains alone on what the others have left. Its epoch rises. Workers come
// back to it, or processes that were started again join it. If one worker has come back by the
// start, the job continues; otherwise the group begins anew, where its workers say.
//
// What always holds:
// - No worker of a job that reassembles is active, so none is granted anything.
// - The workers that wait for its start and have not come back begin with one and the same clock.
// - A number of a launch is never lower than one before it under the same name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/loop.h"

namespace syncd {

// What started a group of processes: a name that they share, and a number that is higher each time
// they are started again. No name: none.
struct Launch {
  std::string name;
  std::uint64_t number = 0;

  // As a joined record has it. The name is plain text, without line ends.
  std::string text() const;
  static bool parse(std::string_view text, Launch& launch);

  bool operator==(const Launch&) const = default;
};

class Group {
 public:
  Group(const EngineServices& engine, JobSpec& spec, Roster& roster, Recorder& recorder, Loop& loop,
        Answers& answers)
      : engine_(engine),
        spec_(spec),
        roster_(roster),
        recorder_(recorder),
        loop_(loop),
        answers_(answers),
        epoch_(recorder.epoch()) {}

  // ---- about a joiner
  // It comes back with iterations that it was granted: it was not started again.
  static bool returns(const wire::Join& join) {
    return join.incarnation != 0 && join.granted != kNoIteration;
  }
  // It is of the job's launch, started again later.
  bool superseded_by(const wire::Join& join) const {
    return !launch_.name.empty() && join.launch == launch_.name &&
           join.launch_number > launch_.number;
  }
  // It was started together with the job's workers.
  bool is_of_launch(const wire::Join& join) const {
    return !launch_.name.empty() && launch_ == Launch{join.launch, join.launch_number};
  }
  // It was started when every active worker had lost its connection: so was its whole group.
  bool restarted_by(const wire::Join& join) const;
  // It is the first of a group, and says how large that is.
  bool opened_by(const wire::Join& join) const;
  // The clock that it begins with if no worker of the group has come back.
  Clock first_clock(const wire::Join& join) const;
  // ---- Each answers the joiner when it says no.
  bool refuses_launch(const Caller& caller, const wire::Join& join) const;
  // It would not begin with the model that the others have loaded.
  bool refuses_beginning(const Caller& caller, const wire::Join& join) const;

  // ---- records
  void fill_joined(Record& record, const wire::Join& join) const;
  void fill_started(Record& record) const;
  void apply_created(const Record& record) { epoch_ = std::max<Epoch>(record.epoch, 1); }
  void apply_reassembling(const Record& record);
  void apply_started(const Record& record);  // before the workers are active
  void apply_joined(const Record& record);   // before the worker is a member
  void apply_left(const Worker& worker);
  void save(JobSnapshot& out) const;
  std::string restore(const JobSnapshot& snapshot);  // empty, or what is impossible in it

  // ---- views
  const Launch& launch() const { return launch_; }
  // Empty, or of a job that reassembles because its last member failed: who, and why.
  const std::string& failure() const { return failure_; }
  bool reassembling() const { return reassembling_; }
  bool waits_again() const { return reassembling_ && roster_.state() == JobState::kWaiting; }
  // How many the start waits for: those that have done their part are not waited for.
  std::uint32_t wanted() const;
  // In which its iterations began to count: workers of earlier epochs are fenced.
  Epoch epoch() const { return epoch_; }
  // Empty, or why a group of so many workers is impossible here.
  std::string cannot_have(std::uint32_t workers) const;

 private:
  EngineServices engine_;
  JobSpec& spec_;
  Roster& roster_;
  Recorder& recorder_;
  Loop& loop_;
  Answers& answers_;
  Launch launch_;
  bool reassembling_ = false;  // and not started again yet
  // Of a job that reassembles: workers that have pushed iterations and left in good order.
  std::uint32_t left_ = 0;
  mutable Rank beginner_ = 0;  // the latest one that a joiner's first iteration was compared with
  Epoch epoch_;
  std::string failure_;
};

}  // namespace syncd
