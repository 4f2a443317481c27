"""Figures and tables, made from run folders and nothing else."""

from taskmix.reporting.comparison import comparison_figures as comparison_figures
from taskmix.reporting.figures import loss_figure as loss_figure
from taskmix.reporting.figures import responsibility_figure as responsibility_figure
from taskmix.reporting.overview import overview_figure as overview_figure
from taskmix.reporting.runs import Run as Run
from taskmix.reporting.runs import read_run as read_run
from taskmix.reporting.runs import read_runs as read_runs
from taskmix.reporting.tables import accuracy_table as accuracy_table
from taskmix.reporting.tables import comparison_table as comparison_table
from taskmix.reporting.tables import shot_table as shot_table
