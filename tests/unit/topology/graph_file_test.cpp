#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/topology/support.h"

namespace syncd::topology {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Graph parsed(const std::string& text) {
  std::string error;
  const std::optional<Graph> graph = parse_graph_text(text, "f", error);
  EXPECT_TRUE(graph) << error;
  return graph.value_or(Graph());
}

std::string error_of(const std::string& text) {
  std::string error;
  EXPECT_FALSE(parse_graph_text(text, "f", error)) << text;
  return error;
}

class GraphFile : public ::testing::Test {
 protected:
  GraphFile() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = ::testing::TempDir() + "syncd_graph_file_" + test->name();
  }
  ~GraphFile() override { std::filesystem::remove(path_); }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string path_;
};

TEST(GraphText, EdgeList) {
  EXPECT_EQ(parsed("0 1\n1 2\n2 0\n"), make("ring_directed", 3));
  EXPECT_EQ(parsed("# a ring\r\n\r\n 0\t1 # first\r\n1 2\r\n2 0"), make("ring_directed", 3));
  EXPECT_EQ(parsed("nodes 4\n0 1\n"), from_edges(4, {{0, 1}}));
  EXPECT_EQ(parsed("nodes 1\n"), Graph(1, {}));
}

TEST(GraphText, AdjacencyMatrix) {
  EXPECT_EQ(parsed("0,1,0\n0,0,1\n1,0,0\n"), make("ring_directed", 3));
  EXPECT_EQ(parsed("1, 1, 0\n0, 1, 1 # second\n\n1, 0, 1"), make("ring_directed", 3));
  EXPECT_EQ(parsed("0\n"), Graph(1, {}));
}

TEST(GraphText, WritesWhatItReads) {
  for (const char* name : {"complete", "double_ring", "root_expander", "star"}) {
    const Graph graph = make(name, 12);
    EXPECT_EQ(parsed(to_edge_list(graph)), graph);
  }
  EXPECT_EQ(parsed(to_edge_list(Graph(3, {}))), Graph(3, {}));
}

TEST(GraphText, ErrorsNameTheLine) {
  EXPECT_THAT(error_of("0 1\n1 x\n"), HasSubstr("f:2: node 'x'"));
  EXPECT_THAT(error_of("0 1\n\n1 -1\n"), HasSubstr("f:3: node '-1'"));
  EXPECT_THAT(error_of("0 1 2\n"), HasSubstr("f:1: '0 1 2' is no edge"));
  EXPECT_THAT(error_of("0 1\n5\n"), HasSubstr("f:2: '5' is no edge"));
  EXPECT_THAT(error_of("nodes 2\n0 2\n"), HasSubstr("f:2: node '2': allowed are whole numbers from "
                                                    "0 to 1"));
  EXPECT_THAT(error_of("0 1\nnodes 2\n"), HasSubstr("f:2: 'nodes'"));
  EXPECT_THAT(error_of("nodes 0\n"), HasSubstr("f:1: nodes '0'"));
  EXPECT_THAT(error_of("0 1000000\n"), HasSubstr("f:1: node '1000000'"));
  EXPECT_THAT(error_of("0,1\n1,2\n"), HasSubstr("f:2: column 2 is '2'"));
  EXPECT_THAT(error_of("0,1\n1\n"), HasSubstr("f:2: it has 1 columns, but the first row has 2"));
  EXPECT_THAT(error_of("0,1\n1,0\n0,1\n"), HasSubstr("f:3: there are more rows"));
  EXPECT_THAT(error_of("0,1,\n"), HasSubstr("f:1: column 3 is ''"));
  EXPECT_THAT(error_of("0,1\n"), HasSubstr("f: the adjacency matrix has 1 rows and 2 columns"));
  EXPECT_THAT(error_of("# nothing\n"), HasSubstr("f: it holds no graph"));
  EXPECT_THAT(error_of(""), HasSubstr("f: it holds no graph"));
}

TEST_F(GraphFile, KeepsWhatItOnceRead) {
  write("0 1\n1 0\n");
  GraphSpec spec = spec_of("file:" + path_);
  std::string error;
  ASSERT_TRUE(load_graph_file(spec, error)) << error;
  write("gone");
  ASSERT_TRUE(load_graph_file(spec, error)) << error;
  const GraphSpec copy = spec;
  EXPECT_EQ(generate(copy, 2, {}, error), make("ring", 2));
}

TEST_F(GraphFile, ErrorsNameTheFile) {
  std::string error;
  GraphSpec spec = spec_of("file:" + path_);
  EXPECT_FALSE(load_graph_file(spec, error));
  EXPECT_EQ(error, "graph file " + path_ + " cannot be read: No such file or directory");
  write("0 1\n1 b\n");
  EXPECT_FALSE(load_graph_file(spec, error));
  EXPECT_THAT(error, HasSubstr(path_ + ":2: node 'b'"));
  spec = spec_of("file:" + ::testing::TempDir());
  EXPECT_FALSE(load_graph_file(spec, error));
  EXPECT_THAT(error, HasSubstr("not a regular file"));
  write("0 1\n" + std::string(1000, 'x') + "\n");
  spec = spec_of("file:" + path_);
  EXPECT_FALSE(load_graph_file(spec, error));
  EXPECT_LT(error.size(), path_.size() + 100);
  spec = spec_of("ring");
  EXPECT_TRUE(load_graph_file(spec, error));
}

TEST_F(GraphFile, ClientsLearnNothingOfIt) {
  std::string error;
  GraphSpec spec = spec_of("file:" + path_);
  EXPECT_FALSE(load_graph_file(spec, error, FileErrors::kForClients));
  const std::string unreadable = error;
  for (const char* text :
       {"secret\n", "secret 1\n", "nodes secret\n", "0,secret\n", "0 secret\n"}) {
    write(text);
    EXPECT_FALSE(load_graph_file(spec, error, FileErrors::kForClients));
    EXPECT_THAT(error, AllOf(HasSubstr(path_ + ":1: "), Not(HasSubstr("secret"))));
  }
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(load_graph_file(spec, error, FileErrors::kForClients));
  EXPECT_EQ(error, unreadable);
  std::filesystem::remove(path_);
  write("");
  std::filesystem::resize_file(path_, graph_file_bytes_max(kEdgesMax) + 1);
  EXPECT_FALSE(load_graph_file(spec, error, FileErrors::kForClients));
  EXPECT_EQ(error, unreadable);
  EXPECT_FALSE(load_graph_file(spec, error));
  EXPECT_THAT(error, HasSubstr("allowed are at most"));
}

}  // namespace
}  // namespace syncd::topology
