"""Figures and tables, made from run folders and nothing else."""

from taskmix.report.comparison import comparison_figures as comparison_figures
from taskmix.report.figures import loss_figure as loss_figure
from taskmix.report.figures import responsibility_figure as responsibility_figure
from taskmix.report.overview import overview_figure as overview_figure
from taskmix.report.runs import Run as Run
from taskmix.report.runs import read_run as read_run
from taskmix.report.runs import read_runs as read_runs
from taskmix.report.tables import accuracy_table as accuracy_table
from taskmix.report.tables import comparison_table as comparison_table
from taskmix.report.tables import shot_table as shot_table
