// See plan.h. Fields are read one by one with their path, so that an error can name it; inside this
// file such an error is an exception.
#include "daemon/tools/ctl/plan.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "daemon/core/planners/abort_tuner.h"
#include "daemon/core/planners/dssp_controller.h"
#include "daemon/core/planners/zipline.h"
#include "daemon/tools/ctl/commands.h"

namespace syncd::ctl {

const char* const kPlanZiplineHelp =
    "Input, one of the two forms (times in milliseconds, fractions allowed):\n"
    "  {\"workers\":[{\"id\":0,\"ends_ms\":[...]}, ...]}\n"
    "  {\"workers\":[{\"id\":0,\"last_ms\":..,\"interval_ms\":..}, ...],\"R\":15}\n"
    "The second predicts R ends each: last_ms + interval_ms, last_ms + 2 interval_ms, ...\n"
    "For --objective rate also \"previous_barrier_ms\", \"beta\", and in each worker \"done\".\n"
    "Output: {\"algorithm\":..,\"objective\":..,\"sync_time_ms\":..,\"wait_ms\":..,\n"
    "\"iterations\":{\"0\":3,...},\"elapsed_us\":..}. The objective is max where none of the ends\n"
    "qualified for rate.";
const char* const kPlanSpecsyncHelp =
    "Input (times in milliseconds, fractions allowed):\n"
    "  {\"workers\":[{\"id\":0,\"pull_ms\":..,\"span_ms\":..}, ...],\n"
    "   \"pushes\":[{\"worker\":1,\"t_ms\":..}, ...],\"cap_ms\":null,\"scope\":\"job\"}\n"
    "cap_ms, the longest abort time, may also be \"authors\", which is the default of the policy\n"
    "specsync, or \"span\", which null stands for. --cap and --scope win over the input.\n"
    "A push by a worker that is not among the workers counts for everybody else.\n"
    "Output: {\"abort_time_ms\":..,\"abort_rate\":{\"0\":..},\"improvement\":..,\"off\":false,\n"
    "\"elapsed_us\":..}; with scope worker abort_time_ms is a map too. null: do not speculate.";
const char* const kPlanDsspHelp =
    "Input (times in milliseconds, fractions allowed):\n"
    "  {\"worker\":{\"latest_ms\":..,\"previous_ms\":..},\n"
    "   \"slowest\":{\"latest_ms\":..,\"previous_ms\":..},\"r_max\":..,\"now_ms\":null}\n"
    "Output: {\"extra_iterations\":..,\"difference_ms\":..}.";

namespace {

using Json = nlohmann::json;            // what is read
using Answer = nlohmann::ordered_json;  // what is written, in the order that --help shows
using namespace syncd::planners;

struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void bad(const std::string& path, const std::string& what) {
  throw BadInput(path + ": " + what);
}

// What a value is, for "is ..., allowed is ...".
std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

// A value with the way to it, such as workers[3].ends_ms.
class Field {
 public:
  Field(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // A member that must be there, and one that may be missing or null.
  Field operator[](const char* key) const {
    const std::optional<Field> member = find(key);
    if (!member) bad(name_of(key), "is missing");
    return *member;
  }
  std::optional<Field> find(const char* key) const {
    if (!value_->is_object()) bad(own_name(), "is " + shown(*value_) + ", allowed is an object");
    const auto at = value_->find(key);
    if (at == value_->end() || at->is_null()) return std::nullopt;
    return Field(*at, name_of(key));
  }

  std::vector<Field> list() const {
    if (!value_->is_array()) bad(path_, "is " + shown(*value_) + ", allowed is a list");
    std::vector<Field> items;
    items.reserve(value_->size());
    for (std::size_t i = 0; i < value_->size(); ++i) {
      items.emplace_back((*value_)[i], fmt::format("{}[{}]", path_, i));
    }
    return items;
  }

  // Milliseconds, as microseconds.
  Micros micros() const {
    constexpr auto kMost = static_cast<double>(kTimeMax / 1000);
    if (!value_->is_number()) wrong("a time in milliseconds");
    const auto rough = value_->get<double>();
    if (!(std::abs(rough) <= kMost)) wrong("-2^60 to 2^60 microseconds");
    if (value_->is_number_integer()) return value_->get<std::int64_t>() * 1000;
    return static_cast<Micros>(std::llround(rough * 1000));
  }
  // Milliseconds, as at least `lowest` microseconds.
  Micros micros_from(Micros lowest, const char* allowed) const {
    const Micros value = micros();
    if (value < lowest) wrong(allowed);
    return value;
  }
  std::int64_t whole(std::int64_t lowest, std::int64_t highest) const {
    const std::string allowed = fmt::format("a whole number from {} to {}", lowest, highest);
    if (!value_->is_number_integer()) wrong(allowed);
    if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX) wrong(allowed);
    const auto value = value_->get<std::int64_t>();
    if (value < lowest || value > highest) wrong(allowed);
    return value;
  }
  std::string text(const std::string& allowed) const {
    if (!value_->is_string()) wrong(allowed);
    return value_->get<std::string>();
  }
  // A worker's name: whole numbers and texts are both taken, as the key that stands for it.
  std::string id() const {
    if (value_->is_string()) return value_->get<std::string>();
    if (!value_->is_number_integer()) wrong("a whole number or a text");
    return value_->dump();
  }

  [[noreturn]] void wrong(const std::string& allowed) const {
    // An option's text as it was typed.
    const bool typed = value_->is_string() && path_.starts_with("--");
    const std::string value = typed ? "'" + value_->get<std::string>() + "'" : shown(*value_);
    bad(own_name(), "is " + value + ", allowed is " + allowed);
  }

 private:
  std::string own_name() const { return path_.empty() ? "the input" : path_; }
  std::string name_of(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  const Json* value_;
  std::string path_;
};

// The members of an object whose keys are known to differ: adding them through the object itself
// would look for each key first, from end to end.
using Members = Answer::object_t;

// Milliseconds again: whole where they are.
Answer milliseconds(Micros us) {
  if (us % 1000 == 0) return us / 1000;
  return static_cast<double>(us) / 1000;
}

// The workers' names in order, each one once.
std::vector<std::string> ids_of(const std::vector<Field>& workers) {
  std::vector<std::string> ids;
  std::set<std::string> seen;
  ids.reserve(workers.size());
  for (const Field& worker : workers) {
    const Field id = worker["id"];
    ids.push_back(id.id());
    if (!seen.insert(ids.back()).second) bad(id.path(), shown(id.value()) + " is there twice");
  }
  return ids;
}

// An option wins over the input's field.
std::optional<Field> option_or(const Field& options, const char* name, const Field& input,
                               const char* key) {
  const std::optional<Field> option = options.find(name);
  return option ? option : input.find(key);
}

// A choice among names.
template <class Value>
Value choice(const std::optional<Field>& field, std::string_view names,
             std::optional<Value> (*parse)(std::string_view), Value otherwise) {
  if (!field) return otherwise;
  const std::string allowed = "one of " + std::string(names);
  const std::optional<Value> value = parse(field->text(allowed));
  if (!value) field->wrong(allowed);
  return *value;
}

class Stopwatch {
 public:
  // Microseconds since the beginning, to a tenth.
  double elapsed_us() const {
    const std::chrono::duration<double, std::micro> since =
        std::chrono::steady_clock::now() - start_;
    return std::round(since.count() * 10) / 10;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// ---- zipline -----------------------------------------------------------------------------------

// So many ends are predicted in about a second and 300 MB.
constexpr std::int64_t kEndsMax = 10'000'000;

// `at_most`: of each worker no more ends than R, where R is given.
EndTimes read_ends(const std::vector<Field>& workers, std::optional<std::int64_t> at_most) {
  EndTimes ends;
  std::vector<Micros> row;
  for (const Field& worker : workers) {
    row.clear();
    const std::vector<Field> fields = worker["ends_ms"].list();
    if (fields.empty()) bad(worker["ends_ms"].path(), "is empty, at least one end is needed");
    for (const Field& field : fields) {
      const Micros end = field.micros();
      if (!row.empty() && end < row.back()) {
        field.wrong("nothing below the end before it: they must be in ascending order");
      }
      row.push_back(end);
    }
    if (at_most && row.size() > static_cast<std::size_t>(*at_most)) {
      row.resize(static_cast<std::size_t>(*at_most));
    }
    ends.add_row(row);
  }
  return ends;
}

std::vector<Progression> read_progressions(const std::vector<Field>& workers) {
  std::vector<Progression> rows;
  rows.reserve(workers.size());
  for (const Field& worker : workers) {
    if (worker.find("ends_ms")) {
      bad(worker.path(), "has ends_ms where others have not: all workers must be of one form");
    }
    const Micros last = worker["last_ms"].micros();
    const Micros interval = worker["interval_ms"].micros_from(0, "0 or more");
    rows.push_back({last + interval, interval});
  }
  return rows;
}

ZiplineOptions read_zipline_options(const Field& input, const std::vector<Field>& workers,
                                    const Field& options, std::vector<std::int64_t>& done) {
  ZiplineOptions out;
  out.algorithm =
      choice(option_or(options, "--algorithm", input, "algorithm"), kNames<ZiplineAlgorithm>,
             parse_name<ZiplineAlgorithm>, ZiplineAlgorithm::kAuto);
  out.objective =
      choice(option_or(options, "--objective", input, "objective"), kNames<ZiplineObjective>,
             parse_name<ZiplineObjective>, ZiplineObjective::kMax);
  if (out.objective != ZiplineObjective::kRate) return out;
  constexpr std::int64_t kCountMax = std::int64_t{1} << 60;
  out.previous_barrier = input["previous_barrier_ms"].micros();
  if (const auto beta = option_or(options, "--beta", input, "beta")) {
    out.beta = beta->whole(0, kCountMax);
  }
  for (const Field& worker : workers) {
    const std::optional<Field> field = worker.find("done");
    done.push_back(field ? field->whole(0, kCountMax) : 0);
  }
  out.done = done;
  return out;
}

Answer run_zipline(const Field& input, const Field& options) {
  const std::vector<Field> workers = input["workers"].list();
  if (workers.empty()) bad("workers", "is empty, at least one worker is needed");
  const std::vector<std::string> ids = ids_of(workers);
  std::vector<std::int64_t> done;
  const ZiplineOptions zipline = read_zipline_options(input, workers, options, done);
  std::optional<std::int64_t> r;
  if (const auto field = option_or(options, "--R", input, "R")) r = field->whole(1, kEndsMax);

  std::optional<ZiplinePlan> plan;
  std::string error;
  double elapsed_us = 0;
  if (workers.front().find("ends_ms")) {
    const EndTimes ends = read_ends(workers, r);
    const Stopwatch watch;
    plan = plan_zipline(ends, zipline, error);
    elapsed_us = watch.elapsed_us();
  } else {
    const std::vector<Progression> rows = read_progressions(workers);
    if (!r) bad("R", "is missing: how many ends of each worker to predict, 1 or more (or --R)");
    const auto most = kEndsMax / static_cast<std::int64_t>(rows.size());
    if (*r > most) {
      bad("R", fmt::format("is {}, allowed with {} workers are 1 to {}", *r, rows.size(), most));
    }
    const Stopwatch watch;
    plan = plan_zipline(rows, static_cast<std::uint32_t>(*r), zipline, error);
    elapsed_us = watch.elapsed_us();
  }
  if (!plan) bad("workers", error);

  Members iterations;
  for (std::size_t p = 0; p < ids.size(); ++p) {
    iterations.push_back({ids[p], plan->iterations[p]});
  }
  return {
      {"algorithm", to_string(plan->algorithm)},       {"objective", to_string(plan->objective)},
      {"sync_time_ms", milliseconds(plan->sync_time)}, {"wait_ms", milliseconds(plan->wait)},
      {"iterations", std::move(iterations)},           {"elapsed_us", elapsed_us}};
}

// ---- specsync ----------------------------------------------------------------------------------

constexpr const char* kCapAllowed =
    "a time in milliseconds above 0, 'authors', or 'span' (the default: below the span)";

void read_cap(const Field& field, TuningOptions& tuning) {
  if (!field.value().is_string()) {
    tuning.cap_rule = AbortCap::kExplicit;
    tuning.cap = field.micros_from(1, kCapAllowed);
    return;
  }
  const std::string name = field.text(kCapAllowed);
  if (name == "authors") {
    tuning.cap_rule = AbortCap::kAuthors;
  } else if (name != "span") {
    field.wrong(kCapAllowed);
  }
}

Answer run_specsync(const Field& input, const Field& options) {
  const std::vector<Field> fields = input["workers"].list();
  if (fields.empty()) bad("workers", "is empty, at least one worker is needed");
  const std::vector<std::string> ids = ids_of(fields);
  std::vector<WorkerSpan> workers;
  std::map<std::string, std::uint32_t> index;
  for (const Field& field : fields) {
    index[ids[workers.size()]] = static_cast<std::uint32_t>(workers.size());
    workers.push_back(
        {field["pull_ms"].micros(), field["span_ms"].micros_from(1, "at least 0.001")});
  }
  std::vector<LoggedPush> pushes;
  for (const Field& field : input["pushes"].list()) {
    const auto worker = index.find(field["worker"].id());
    pushes.push_back({worker == index.end() ? kNoWorker : worker->second, field["t_ms"].micros()});
  }
  TuningOptions tuning_options;
  tuning_options.scope = choice(option_or(options, "--scope", input, "scope"), kNames<TuningScope>,
                                parse_name<TuningScope>, TuningScope::kJob);
  if (const auto cap = option_or(options, "--cap", input, "cap_ms")) read_cap(*cap, tuning_options);

  std::string error;
  const Stopwatch watch;
  const std::optional<Tuning> tuning = tune_abort(workers, pushes, tuning_options, error);
  const double elapsed_us = watch.elapsed_us();
  if (!tuning) bad("workers", error);

  Members times;
  Members rates;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool on = tuning->abort_time[i] > 0;
    times.push_back({ids[i], on ? milliseconds(tuning->abort_time[i]) : Answer(nullptr)});
    rates.push_back({ids[i], on ? Answer(tuning->abort_rate[i]) : Answer(nullptr)});
  }
  const bool one_for_all = tuning_options.scope == TuningScope::kJob;
  return {{"abort_time_ms", one_for_all ? times.front().second : Answer(times)},
          {"abort_rate", std::move(rates)},
          {"improvement", tuning->improvement},
          {"off", tuning->off},
          {"elapsed_us", elapsed_us}};
}

// ---- dssp --------------------------------------------------------------------------------------

PushTimes read_pushes(const Field& field) {
  const Field previous = field["previous_ms"];
  const PushTimes pushes{field["latest_ms"].micros(), previous.micros()};
  if (pushes.previous > pushes.latest) previous.wrong("nothing later than latest_ms");
  return pushes;
}

Answer run_dssp(const Field& input) {
  const PushTimes worker = read_pushes(input["worker"]);
  const PushTimes slowest = read_pushes(input["slowest"]);
  const std::int64_t r_max = input["r_max"].whole(0, kExtraMax);
  std::optional<Micros> now;
  if (const std::optional<Field> field = input.find("now_ms")) now = field->micros();
  std::string error;
  const auto extra = dssp_extra_iterations(worker, slowest, r_max, now, error);
  if (!extra) throw BadInput(error);
  return {{"extra_iterations", extra->extra}, {"difference_ms", milliseconds(extra->difference)}};
}

// By name; those that were not given are null.
Json as_json(const PlanOptions& options) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json json = {
      {"--algorithm", or_null(options.algorithm)}, {"--objective", or_null(options.objective)},
      {"--beta", or_null(options.beta)},           {"--R", or_null(options.r)},
      {"--scope", or_null(options.scope)},         {"--cap", or_null(options.cap)}};
  if (!options.cap) return json;
  const Json cap = Json::parse(*options.cap, nullptr, false);
  if (cap.is_number()) json["--cap"] = cap;
  return json;
}

}  // namespace

std::string plan_algorithms() {
  return "One of " + std::string(kNames<ZiplineAlgorithm>);
}

std::optional<std::string> plan_text(PlanKind kind, const std::string& text,
                                     const PlanOptions& options, std::string& error) try {
  const Json json = Json::parse(text);
  const Field input(json, "");
  const Json given = as_json(options);
  const Field given_options(given, "");
  Answer answer;
  switch (kind) {
    case PlanKind::kZipline:
      answer = run_zipline(input, given_options);
      break;
    case PlanKind::kSpecsync:
      answer = run_specsync(input, given_options);
      break;
    case PlanKind::kDssp:
      answer = run_dssp(input);
      break;
  }
  return answer.dump(-1, ' ', false, Answer::error_handler_t::replace);
} catch (const BadInput& bad_input) {
  error = bad_input.what();
  return std::nullopt;
} catch (const Json::exception& not_json) {
  error = std::string("the input is not JSON: ") + not_json.what();
  return std::nullopt;
}

int run_plan(PlanKind kind, const PlanOptions& options, std::istream& standard_input,
             std::ostream& out, std::ostream& err) {
  std::ostringstream text;
  errno = 0;
  std::ifstream file;
  const bool from_file = options.input != "-";
  if (from_file) file.open(options.input, std::ios::binary);
  // Nothing to read is a failure of this operator too, but no error: then errno stays as it was.
  // A folder can be opened, but not read.
  text << (from_file ? file.rdbuf() : standard_input.rdbuf());
  if ((from_file && !file.is_open()) || (!text && errno != 0)) {
    err << "syncctl: cannot read " << (from_file ? options.input : "the standard input") << ": "
        << std::generic_category().message(errno) << "; expected is a file with JSON, or -\n";
    return kExitUsage;
  }
  std::string error;
  const std::optional<std::string> answer = plan_text(kind, text.str(), options, error);
  if (!answer) {
    err << "syncctl: " << error << "\n";
    return kExitUsage;
  }
  out << *answer << "\n";
  return kExitOk;
}

}  // namespace syncd::ctl
