// Who is let in and what for, without a socket: what the system, TLS and the Hello say is made up.
#include "daemon/edge/net/admission.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/integration/support/files.h"
#include "tests/support/tls_files.h"

namespace syncd::net {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToken = "0123456789abcdef-first";
constexpr const char* kOther = "0123456789abcdef-second";
constexpr uid_t kSomebody = 4711;

class AdmissionTest : public ::testing::Test {
 protected:
  void tokens(const std::string& text, unsigned mode = 0600) {
    test::write_private_file(path(), text, mode);
    rules_.token_file = path();
  }
  std::string path() const { return directory_.file("tokens"); }
  std::unique_ptr<Admission> made() {
    std::string error;
    auto admission = Admission::make(rules_, error);
    if (admission == nullptr) throw std::runtime_error(error);
    return admission;
  }
  std::string mistake() {
    std::string error;
    EXPECT_EQ(Admission::make(rules_, error), nullptr);
    return error;
  }
  static Applicant over_tcp(std::string_view token = {}) {
    Applicant applicant;
    applicant.token = token;
    return applicant;
  }
  static Applicant over_unix(uid_t uid, gid_t gid = 1) {
    Applicant applicant;
    applicant.is_tcp = false;
    applicant.uid = uid;
    applicant.gid = gid;
    return applicant;
  }
  // Who it is, or why not.
  std::string outcome(const Applicant& applicant) {
    Identity identity;
    std::string why;
    return made()->admit(applicant, identity, why) ? identity.text() : "refused: " + why;
  }

  test::TempDir directory_;
  AdmissionRules rules_;
};

TEST_F(AdmissionTest, WithoutRulesEverybodyIsLetIn) {
  EXPECT_EQ(outcome(over_tcp()), "nobody known");
  EXPECT_EQ(outcome(over_unix(kSomebody, 12)), "uid:4711, gid:12");
}

TEST_F(AdmissionTest, EachTokenOfTheFileIsGood) {
  tokens(std::string("# rotated in May\n\n") + kToken + "\r\n[team-a] " + kOther);
  EXPECT_EQ(made()->tokens(), 2U);
  EXPECT_EQ(outcome(over_tcp(kToken)), "token");
  EXPECT_EQ(outcome(over_tcp(kOther)), "token:team-a");
  EXPECT_THAT(outcome(over_tcp()), HasSubstr("refused: this daemon wants a token"));
  for (const std::string& wrong :
       {std::string(kToken) + "x", std::string(kToken).substr(1), std::string("team-a"),
        std::string("# rotated in May"), std::string(4096, 'x')}) {
    EXPECT_THAT(outcome(over_tcp(wrong)),
                AllOf(HasSubstr("refused"), Not(HasSubstr(wrong)), Not(HasSubstr(kToken))));
  }
  EXPECT_THAT(outcome(over_unix(kSomebody)), HasSubstr("refused")) << "on a socket, too";
}

TEST_F(AdmissionTest, TheOwnerAndRootNeedNoToken) {
  tokens(kToken);
  EXPECT_THAT(outcome(over_unix(0)), HasSubstr("uid:0"));
  EXPECT_THAT(outcome(over_unix(geteuid())), HasSubstr("uid:"));
  Applicant elsewhere = over_tcp();
  elsewhere.uid = 0;
  EXPECT_THAT(outcome(elsewhere), HasSubstr("refused")) << "a connection over TCP has no user";
}

TEST_F(AdmissionTest, UsersAndGroupsOfASocket) {
  rules_.unix_users = {kSomebody};
  rules_.unix_groups = {77};
  EXPECT_EQ(outcome(over_unix(kSomebody)), "uid:4711, gid:1");
  EXPECT_EQ(outcome(over_unix(4712, 77)), "uid:4712, gid:77");
  EXPECT_THAT(outcome(over_unix(4712)), AllOf(HasSubstr("refused"), HasSubstr("4712")));
  tokens(kToken);
  EXPECT_EQ(outcome(over_unix(kSomebody)), "uid:4711, gid:1") << "without a token";
  Applicant with_token = over_unix(4712);
  with_token.token = kToken;
  EXPECT_EQ(outcome(with_token), "uid:4712, gid:1, token");
}

TEST_F(AdmissionTest, AUsersOtherGroupsCountWhereARuleNamesThem) {
  rules_.unix_groups = {77};
  rules_.admin = {"gid:78"};
  Applicant applicant = over_unix(4712);
  applicant.groups = {1, 77, 78, 79};
  EXPECT_EQ(outcome(applicant), "uid:4712, gid:1, gid:77, gid:78");
  applicant.groups = {1, 78, 79};
  EXPECT_THAT(outcome(applicant), HasSubstr("refused"));
}

TEST_F(AdmissionTest, FilesAreForThoseThatAdminNames) {
  std::string why;
  const auto may = [&](const Applicant& applicant, bool is_here) {
    Identity identity;
    const auto admission = Admission::make(rules_, why);
    return admission->admit(applicant, identity, why) &&
           admission->may_name_files(identity, is_here, why);
  };
  const Applicant owner = over_unix(geteuid());
  const Applicant somebody = over_unix(kSomebody);
  EXPECT_TRUE(may(somebody, true));
  EXPECT_FALSE(may(somebody, false));
  rules_.unix_users = {kSomebody};
  EXPECT_FALSE(may(somebody, true)) << "where there are rules, one must name them";
  EXPECT_THAT(why, HasSubstr("auth.admin"));
  EXPECT_TRUE(may(owner, false));
  rules_.admin = {"uid:4711"};
  EXPECT_TRUE(may(somebody, false));
}

// Its path is one of the daemon's, too, and what lies there has everything of every job.
TEST_F(AdmissionTest, TheStoreIsCopiedForThoseThatAdminNames) {
  std::string why;
  const auto may = [&](const Applicant& applicant, bool is_here) {
    Identity identity;
    const auto admission = Admission::make(rules_, why);
    return admission->admit(applicant, identity, why) &&
           admission->may_copy_store(identity, is_here, why);
  };
  EXPECT_TRUE(may(over_tcp(), true));
  EXPECT_FALSE(may(over_tcp(), false));
  tokens(kToken);
  EXPECT_FALSE(may(over_tcp(kToken), true)) << "a worker's token is no operator's";
  EXPECT_THAT(why, AllOf(HasSubstr("may not copy the store"), HasSubstr("auth.admin")));
  EXPECT_TRUE(may(over_unix(geteuid()), true));
  rules_.admin = {"token"};
  EXPECT_TRUE(may(over_tcp(kToken), false));
}

TEST_F(AdmissionTest, FilesThatCannotBeUsedAreNamedAndNoTokenIs) {
  tokens(kToken, 0644);
  EXPECT_THAT(mistake(), AllOf(HasSubstr(path()), HasSubstr("0644"), Not(HasSubstr(kToken))));
  tokens(std::string(kToken) + "\nshort\n");
  EXPECT_THAT(mistake(),
              AllOf(HasSubstr(path() + ":2"), HasSubstr("5 bytes"), Not(HasSubstr("short"))));
  tokens(std::string("[bad name] ") + kToken);
  EXPECT_THAT(mistake(), AllOf(HasSubstr(path() + ":1"), Not(HasSubstr(kToken))));
  tokens("# nothing\n");
  EXPECT_THAT(mistake(), HasSubstr("no token"));
  tokens(std::string("[team-a] ") + kToken + "\n[team-b] " + kToken + "\n");
  EXPECT_THAT(mistake(), AllOf(HasSubstr(path() + ":2: the token stands in the file already, as "
                                                  "token:team-a"),
                               Not(HasSubstr(kToken))));
  rules_.token_file = directory_.file("none");
  EXPECT_THAT(mistake(), HasSubstr("No such file"));
  rules_.token_file = directory_.path();
  EXPECT_THAT(mistake(), HasSubstr("not a regular file"));
}

TEST_F(AdmissionTest, AFileOfAnotherKindIsNotTakenForTokens) {
  for (const char* text : {"0123456789abcdef\x01", "0123456789abcdef\tx",
                           "0123456789abcdef\xc3\xa4", "0123456789abcdef\x7f"}) {
    tokens(std::string(text) + "\n");
    EXPECT_THAT(mistake(), AllOf(HasSubstr("tokens:1: "), HasSubstr("no printable ASCII")));
  }
}

// An editor's blank would be a part of the token, and nobody would see why no client gets in.
TEST_F(AdmissionTest, ABlankAroundATokenIsNamed) {
  for (const std::string& text : {std::string(" ") + kToken, std::string(kToken) + " ",
                                  std::string(kToken) + "\t\r", std::string("[a]  ") + kToken}) {
    tokens("# of May\n" + text + "\n");
    EXPECT_THAT(mistake(), AllOf(HasSubstr("tokens:2: a blank stands before or after the token"),
                                 Not(HasSubstr(kToken))));
  }
  tokens("a phrase of some words\n");
  EXPECT_EQ(outcome(over_tcp("a phrase of some words")), "token");
}

// One certificate may be made out for thousands of names, and each refusal and audit names it.
TEST(IdentityTest, OfVeryManyNamesTheTextHasTheFirst) {
  Identity one;
  one.names = {"cert:" + std::string(255, 'a')};
  EXPECT_EQ(one.text(), one.names[0]);
  Identity two = one;
  two.names.emplace_back("token:b");
  EXPECT_EQ(two.text(), one.names[0] + ", token:b");
  Identity many;
  for (int i = 0; i < 1000; ++i) many.names.push_back("cert:w" + std::to_string(i));
  EXPECT_LT(many.text().size(), 600U);
  EXPECT_THAT(many.text(), AllOf(HasSubstr("cert:w0, cert:w1, "), HasSubstr(" more")));
  Identity other = many;
  other.names.back() = "cert:other";
  EXPECT_EQ(other.text(), many.text());
}

// No combination of what somebody has may be a new share.
TEST(IdentityTest, SharesAreCountedByEachName) {
  const auto counted = [](std::vector<std::string> names) {
    Identity identity;
    identity.names = std::move(names);
    return identity.counted();
  };
  EXPECT_THAT(counted({"uid:1", "gid:2", "gid:3"}), ElementsAre("uid:1"));
  EXPECT_THAT(counted({"cert:a", "cert:b", "token:c"}), ElementsAre("cert:a", "cert:b", "token:c"));
  EXPECT_THAT(counted({"cert:a", "token"}), ElementsAre("cert:a")) << "all may have that one";
  EXPECT_THAT(counted({"token"}), ElementsAre("token"));
  EXPECT_THAT(counted({}), ::testing::IsEmpty());
}

TEST_F(AdmissionTest, AReloadThatFailsChangesNothing) {
  tokens(kToken);
  const auto admission = made();
  const auto is_good = [&](const char* token) {
    Identity identity;
    std::string why;
    return admission->admit(over_tcp(token), identity, why);
  };
  std::string error;
  test::write_private_file(path(), "short");
  EXPECT_FALSE(admission->reload(error));
  EXPECT_TRUE(is_good(kToken));
  test::write_private_file(path(), kOther);
  EXPECT_TRUE(admission->reload(error));
  EXPECT_FALSE(is_good(kToken));
  EXPECT_TRUE(is_good(kOther));
}

TEST_F(AdmissionTest, JobsAreForThoseWhomARuleNames) {
  rules_.allow = {{"cert:*.team-a.example", "a-*"}, {"token:ci", "*"}};
  rules_.admin = {"token:ops"};
  const auto admission = made();
  std::string why;
  const Identity a{{"cert:x.example", "cert:w1.team-a.example"}};
  EXPECT_TRUE(admission->may_use(a, "a-cnn", why));
  EXPECT_FALSE(admission->may_use(a, "b-cnn", why));
  EXPECT_THAT(why, AllOf(HasSubstr("w1.team-a.example"), HasSubstr("'b-cnn'")));
  EXPECT_FALSE(admission->may_use(a, "#1", why)) << "a number is not a way around";
  EXPECT_TRUE(admission->may_use({{"token:ci"}}, "anything", why));
  EXPECT_FALSE(admission->may_use({}, "a-cnn", why));
  // What it admits one by one, it admits of many.
  Identity owner_of_all;
  owner_of_all.is_owner = true;
  for (const Identity& one : {a, Identity{{"token:ci"}}, Identity{}, owner_of_all}) {
    for (const char* job : {"a-cnn", "b-cnn", "#1", "anything"}) {
      EXPECT_EQ(Admission::is_one_of(admission->jobs_of(one), job),
                admission->may_use(one, job, why))
          << one.text() << " " << job;
    }
  }
  EXPECT_FALSE(admission->may_change(a, "a-cnn", why));
  EXPECT_TRUE(admission->may_change({{"token:ops"}}, "a-cnn", why));
  const Identity owner{{"uid:0"}, true};
  EXPECT_TRUE(admission->may_use(owner, "b", why) && admission->may_change(owner, "b", why));
}

TEST_F(AdmissionTest, WithoutAListOfAdministratorsARuleForJobsMakesNobodyOne) {
  std::string why;
  EXPECT_TRUE(made()->may_change({{"token"}}, "j", why));
  rules_.allow = {{"token", "*"}};
  EXPECT_FALSE(made()->may_change({{"token"}}, "j", why));
}

}  // namespace
}  // namespace syncd::net
