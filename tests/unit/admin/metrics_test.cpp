// The metrics' text, and that the table, the documentation, the dashboard and the alerts name the
// same metrics.
#include "daemon/edge/admin/metrics.h"

#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace syncd::admin {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string read_file(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Snapshot snapshot_of(std::size_t jobs) {
  Snapshot snapshot;
  snapshot.server.version = "1.2";
  snapshot.member = {"lab", "node-b", 0, "node-a", false, 77, 11, 20, 18, "etcd does not answer"};
  snapshot.member->set_aside = 2;
  snapshot.member->lease_left = 1'500'000;
  snapshot.member->etcd_bytes = 9;
  snapshot.member->etcd_file_bytes = 10;
  snapshot.member->etcd_quota_bytes = 99;
  snapshot.server.certificates.certificate.until_s = 1'800'000'000;
  snapshot.server.certificates.authorities = {{0, 1'900'000'000}};
  for (std::size_t i = 0; i < jobs; ++i) {
    JobFigures job;
    job.id = static_cast<JobId>(i + 1);
    job.name = "job-" + std::to_string(i);
    job.policy = "hop:file:/a\"b\\c\nd";
    job.has_clocks = true;
    job.clock_min = 3;
    job.clock_max = 8;
    job.lag = 5;
    job.members[2] = 7;
    job.counters.wasted_us = 1'500'000;
    job.has_rounds = true;
    job.rounds.workers[static_cast<std::size_t>(RoundPart::kSpare)] = 2;
    job.rounds.excluded_hosts = 1;
    job.counters.views = 6;
    job.counters.rounds_broken[static_cast<std::size_t>(RoundBreak::kPreempted)] = 3;
    job.counters.checkpoints_complete = 4;
    job.counters.checkpoints_incomplete = 1;
    job.checkpoint_complete_us = 1'700'000'000'500'000;
    job.counters.begin_wait.add(100);
    job.counters.begin_wait.add(101);
    job.counters.begin_wait.add(3'600'000'000);
    snapshot.server.jobs.push_back(job);
  }
  return snapshot;
}
std::string text_of(const Snapshot& snapshot) {
  return metrics_text(snapshot, {}, {});
}

TEST(MetricsTest, ShowsAJob) {
  const std::string text = text_of(snapshot_of(1));
  EXPECT_THAT(text, HasSubstr("syncd_build_info{version=\"1.2\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("syncd_job_clock_lag{job_name=\"job-0\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("syncd_job_members{job_name=\"job-0\",state=\"running\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("syncd_job_wasted_compute_seconds_total{job_name=\"job-0\"} 1.5\n"));
  EXPECT_THAT(
      text, HasSubstr("syncd_job_checkpoints_total{job_name=\"job-0\",result=\"incomplete\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("syncd_job_checkpoint_open{job_name=\"job-0\"} 0\n"));
  EXPECT_THAT(
      text, HasSubstr("syncd_job_checkpoint_timestamp_seconds{job_name=\"job-0\"} 1700000000.5\n"));
  EXPECT_THAT(text, HasSubstr("policy=\"hop:file:/a\\\"b\\\\c\\nd\""));
}

TEST(MetricsTest, ShowsAMemberOfACluster) {
  Snapshot snapshot = snapshot_of(0);
  std::string text = text_of(snapshot);
  EXPECT_THAT(
      text,
      HasSubstr("syncd_cluster_leads{cluster_name=\"lab\",shard=\"0\",member=\"node-b\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_term{cluster_name=\"lab\",shard=\"0\"} 77\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_log_entries{cluster_name=\"lab\",shard=\"0\"} 10\n"));
  EXPECT_THAT(text,
              HasSubstr("syncd_cluster_copy_lag_entries{cluster_name=\"lab\",shard=\"0\"} 2\n"));
  const std::string labels = "{cluster_name=\"lab\",shard=\"0\"";
  EXPECT_THAT(text, HasSubstr("syncd_cluster_copies_set_aside" + labels + "} 2\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_take_overs_total" + labels + ",cause=\"free\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("\nsyncd_cluster_lease_left_seconds")));
  snapshot.member->leads = true;
  snapshot.member->copied = 21;  // it had the entry before this member saw the log's end
  text = text_of(snapshot);
  EXPECT_THAT(text, HasSubstr("member=\"node-b\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("syncd_cluster_copy_lag_entries{cluster_name=\"lab\",shard=\"0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_take_overs_total" + labels + ",cause=\"free\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_take_overs_total" + labels + ",cause=\"given\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_lease_left_seconds" + labels + "} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_etcd_used_bytes" + labels + "} 9\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_etcd_file_bytes" + labels + "} 10\n"));
  EXPECT_THAT(text, HasSubstr("syncd_cluster_etcd_quota_bytes" + labels + "} 99\n"));
  snapshot.member.reset();
  EXPECT_THAT(text_of(snapshot), Not(HasSubstr("\nsyncd_cluster_leads")));
}

TEST(MetricsTest, ShowsTheRoundsOfAJobThatHasSome) {
  Snapshot snapshot = snapshot_of(1);
  const std::string text = text_of(snapshot);
  EXPECT_THAT(text, HasSubstr("syncd_job_views_total{job_name=\"job-0\"} 6\n"));
  const std::string broken = "syncd_job_rounds_broken_total{job_name=\"job-0\",reason=";
  EXPECT_THAT(text, HasSubstr(broken + "\"preempted\"} 3\n"));
  EXPECT_THAT(text, HasSubstr(broken + "\"newcomer\"} 0\n"));
  const std::string workers = "syncd_job_round_workers{job_name=\"job-0\",state=";
  EXPECT_THAT(text, HasSubstr(workers + "\"in_round\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(workers + "\"spare\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("syncd_job_excluded_hosts{job_name=\"job-0\"} 1\n"));

  snapshot.server.jobs[0].has_rounds = false;
  const std::string without = text_of(snapshot);
  EXPECT_THAT(without, Not(HasSubstr("syncd_job_rounds_broken_total{")));
  EXPECT_THAT(without, Not(HasSubstr("syncd_job_round_workers{")));
  EXPECT_THAT(without, Not(HasSubstr("syncd_job_excluded_hosts{")));
}

TEST(MetricsTest, HistogramsAreCumulative) {
  const std::string text = text_of(snapshot_of(1));
  const std::string name = "syncd_job_begin_wait_seconds";
  EXPECT_THAT(text, HasSubstr(name + "_bucket{job_name=\"job-0\",le=\"1e-04\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{job_name=\"job-0\",le=\"0.001\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{job_name=\"job-0\",le=\"600\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(name + "_bucket{job_name=\"job-0\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr(name + "_sum{job_name=\"job-0\"} 3600.000201\n"));
  EXPECT_THAT(text, HasSubstr(name + "_count{job_name=\"job-0\"} 3\n"));
}

TEST(MetricsTest, WithoutActiveWorkersThereIsNoClock) {
  Snapshot snapshot = snapshot_of(1);
  snapshot.server.jobs[0].has_clocks = false;
  EXPECT_THAT(text_of(snapshot), Not(HasSubstr("syncd_job_clock_min{")));
}

TEST(MetricsTest, EveryMetricIsWrittenUnderItsNameAndType) {
  Snapshot snapshot = snapshot_of(1);
  snapshot.member->leads = true;  // some are of leaders only
  const std::string text = text_of(snapshot);
  std::set<std::string> names;
  for (const MetricDescription& metric : metric_descriptions()) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name << " twice";
    EXPECT_THAT(text, HasSubstr("# TYPE " + metric.name + " " + metric.type + "\n"));
    const std::regex sample("\n" + metric.name + "(_bucket)?[{ ]");
    EXPECT_TRUE(std::regex_search(text, sample)) << metric.name << " has no sample";
    EXPECT_EQ(metric.type == "counter", metric.name.ends_with("_total")) << metric.name;
  }
}

// The labels that the table promises are those that are written.
TEST(MetricsTest, TheTableNamesTheLabels) {
  std::istringstream lines(text_of(snapshot_of(1)));
  std::map<std::string, std::string> labels;
  for (const MetricDescription& metric : metric_descriptions()) labels[metric.name] = metric.labels;
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) family = line.substr(7, line.find(' ', 7) - 7);
    if (line.starts_with("#")) continue;
    std::string found;
    static const std::regex label("[{,]([a-z_]+)=\"");
    for (auto it = std::sregex_iterator(line.begin(), line.end(), label);
         it != std::sregex_iterator(); ++it) {
      if ((*it)[1] != "le") found += (found.empty() ? "" : ", ") + (*it)[1].str();
    }
    EXPECT_EQ(found, labels[family]) << line;
  }
}

// packaging/doc/metrics.md has one row for each metric, and none for any other.
TEST(MetricsTest, TheDocumentationIsTheTable) {
  std::string rows;
  for (const MetricDescription& metric : metric_descriptions()) {
    rows += "| `" + metric.name + "` | " + metric.type + " | " + metric.labels + " | " +
            metric.help + " |\n";
  }
  std::istringstream page(read_file(SYNCD_METRICS_PAGE));
  std::string documented;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `")) documented += line + "\n";
  }
  EXPECT_EQ(documented, rows) << "packaging/doc/metrics.md must have exactly these rows";
}

// Whatever a panel or an alert asks for is there.
TEST(MetricsTest, TheDashboardAndTheAlertsAskForMetricsThatThereAre) {
  std::set<std::string> known;
  for (const MetricDescription& metric : metric_descriptions()) {
    known.insert(metric.name);
    if (metric.type != "histogram") continue;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) known.insert(metric.name + suffix);
  }
  for (const char* path : {SYNCD_DASHBOARD, SYNCD_ALERTS}) {
    const std::string text = read_file(path);
    static const std::regex name("\\b(syncd|process)_[a-z_]+");
    std::size_t count = 0;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), name);
         it != std::sregex_iterator(); ++it, ++count) {
      EXPECT_TRUE(known.contains(it->str())) << path << " asks for " << it->str();
    }
    EXPECT_GT(count, 10U) << path;
  }
}

TEST(MetricsTest, TheProcessHasFigures) {
  const ProcessFigures figures = process_figures();
  EXPECT_GT(figures.resident_bytes, 1'000'000U);
  EXPECT_GE(figures.open_fds, 3U);
  EXPECT_GE(figures.max_fds, figures.open_fds);
  EXPECT_GE(figures.threads, 1U);
  EXPECT_GT(figures.start_s, 1e9);
}

}  // namespace
}  // namespace syncd::admin
