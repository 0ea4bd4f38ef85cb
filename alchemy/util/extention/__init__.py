"""Extensions of libraries; existing projects import this spelling."""
