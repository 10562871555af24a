// What every verb says and how it ends: exit statuses, the one line of an error, results on
// standard output, colour, progress. Results go to standard output, everything else to standard
// error.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "eplog/result.h"
#include "report/json.h"

namespace eplog {

enum ExitStatus : int {
  kDone = 0,
  kFailed = 1,
  kWrongUsage = 2,
  kDoneWithFindings = 3,  // done, but the array is degraded or something was found
};

// `eplog VERB: what` on standard error, as one line; returns the exit status that the error's code
// asks for: kInvalidArgument is wrong usage, everything else a failure.
int ReportError(std::string_view verb, const Error& error);
int ReportUsage(std::string_view verb, std::string_view what);
// From now on a command that fails without having printed a document prints one that says so:
// {"error": {"verb", "message", "exit_status"}}, at FinishOutput. For --json.
void ReportErrorsAsJson();
// `eplog VERB: warning: what`
void Warn(std::string_view verb, std::string_view what);

// To standard output, with a newline. Print is for people; PrintJson writes the one document of
// --json.
void Print(std::string_view text);
void PrintJson(const Json& document);

// Standard output could be written; `status` if so. Every main path ends here, so that a full disk
// is no success. Once; what was done all the same is said to be.
int FinishOutput(int status);

// `text` as one word of a shell command, quoted where it must be: for commands that are shown to be
// typed.
std::string ShellWord(std::string_view text);

enum class Colour { kRed, kGreen, kYellow, kBold };
// `text`, coloured if standard output is a terminal and NO_COLOR is not set.
std::string Paint(Colour colour, std::string_view text);

// How far long work is and when it will end, from the rate of the last ten seconds. Pure: time is
// passed in.
class ProgressEstimate {
 public:
  void Add(double now_seconds, uint64_t done, uint64_t total);
  [[nodiscard]] double fraction() const;
  // In units a second; 0 when unknown.
  [[nodiscard]] double rate() const;
  // Negative when unknown.
  [[nodiscard]] double seconds_left() const;
  [[nodiscard]] uint64_t done() const { return done_; }
  [[nodiscard]] uint64_t total() const { return total_; }

 private:
  struct Sample {
    double at;
    uint64_t done;
  };
  std::deque<Sample> window_;
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

// A bar on a terminal, redrawn ten times a second; elsewhere a line every few seconds. On standard
// error.
class ProgressBar {
 public:
  enum class Unit { kBytes, kCount };
  ProgressBar(std::string_view verb, std::string_view what, Unit unit);
  ~ProgressBar() { Finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(uint64_t done, uint64_t total);
  // Takes the bar away. Before anything else is printed.
  void Finish();
  // For APIs that take a function; refers to this bar.
  [[nodiscard]] std::function<void(uint64_t, uint64_t)> Sink();

 private:
  [[nodiscard]] std::string Figures() const;
  void Draw();

  std::string verb_;
  std::string what_;
  Unit unit_;
  bool terminal_;
  bool drawn_ = false;
  double started_ = 0;
  double last_shown_ = 0;
  ProgressEstimate estimate_;
};

}  // namespace eplog
